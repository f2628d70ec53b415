"""The base of every other package: errors, settings, log lines and values."""
