"""`make run`: a gateway API with a certificate, users and simulated subscribers."""
