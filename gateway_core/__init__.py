"""The embedded core daemon: one way to satisfy the interface file."""
