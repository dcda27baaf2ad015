"""Mutation study of the verifier: programs with one mistake, judged by `verify` and by running them."""
