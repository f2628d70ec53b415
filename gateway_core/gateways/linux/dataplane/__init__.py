"""Data plane: what the kernel does with the packets of each session."""
