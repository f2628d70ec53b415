"""The management API of a broadband subscriber gateway."""
