"""The accelerator as an execution module: its patterns, its costs, and the programs of its operators."""
