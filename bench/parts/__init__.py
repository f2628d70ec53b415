"""The measurements, one kind of work a module."""
