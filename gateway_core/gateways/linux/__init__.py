"""A gateway on Linux, with real subscribers."""
