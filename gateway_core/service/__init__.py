"""The methods of the core's interface."""
