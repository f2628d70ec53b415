"""Processes, files and commands, as an operator meets them."""
