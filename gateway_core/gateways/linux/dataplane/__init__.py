"""The kernel's work on the packets of each session."""
