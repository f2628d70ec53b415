"""The running configuration of the embedded core."""
