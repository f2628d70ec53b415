"""The commands, the core daemon, and the starter of `make run`."""
