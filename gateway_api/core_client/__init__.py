"""The events of the core, and its whole lists."""
