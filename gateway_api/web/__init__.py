"""The HTTP surface: routes and what they share."""
