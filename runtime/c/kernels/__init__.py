"""How the operators of host steps become calls of C functions, by subject."""
