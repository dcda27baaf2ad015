"""Recurrent layers, and what a network keeps from one inference to the next."""
