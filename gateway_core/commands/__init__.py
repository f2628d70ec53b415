"""`gateway-core`: the core daemon, with a command for each gateway."""
