"""VLANs on demand."""
