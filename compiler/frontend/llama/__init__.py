"""Checkpoints of llama2.c: Llama models in float32, to integer graphs of one decoder step."""
