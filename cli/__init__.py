"""The `tilewright` command: one module per verb, heavy imports only inside the verbs."""
