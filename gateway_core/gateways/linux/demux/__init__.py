"""Creation of subscribers' VLANs on demand, and removal of idle VLANs."""
