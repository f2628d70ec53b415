"""What the gateway on Linux depends on: whether it does its work."""
