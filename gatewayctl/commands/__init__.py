"""The commands, one module per subject. Each calls a gateway and returns a result; it prints nothing."""
