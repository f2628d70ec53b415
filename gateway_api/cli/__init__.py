"""What people and units start: the commands, the core daemon, and `make run`."""
