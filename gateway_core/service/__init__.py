"""Services: the methods of the core's interface."""
