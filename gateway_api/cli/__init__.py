"""The commands of the API, and the starter of `make run`."""
