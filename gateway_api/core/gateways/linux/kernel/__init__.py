"""The kernel's network: read in bulk, changed by one thread."""
