"""The client of the core daemon."""
