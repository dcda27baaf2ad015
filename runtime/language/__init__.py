"""Text out of language models: tokens, and the loop that asks a program for the next one."""
