"""A gateway with simulated subscribers."""
