"""Errors, environment variables, log lines, files and formats of values, for all programs."""
