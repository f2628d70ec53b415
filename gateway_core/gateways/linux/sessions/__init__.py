"""The sessions of the Linux gateway, from their sources to the disk."""
