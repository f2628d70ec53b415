"""`make run`: a gateway API for a look, with simulated subscribers."""
