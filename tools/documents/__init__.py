"""Generators of the files that are derived from the code, such as man pages and pages of the reference."""
