"""Boards that carry the accelerator: one package per board."""
