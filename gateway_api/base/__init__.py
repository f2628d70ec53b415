"""Modules that all other packages of the API may use."""
