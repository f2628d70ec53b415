"""What the API asks of the core daemon."""
