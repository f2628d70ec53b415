"""Each module by itself, without a process of its own."""
