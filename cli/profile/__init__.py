"""The metrics of a run as the command shows and writes them: a table, JSON, CSV, a timeline."""
