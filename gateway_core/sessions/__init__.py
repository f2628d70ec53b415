"""Sessions of a gateway, and their events."""
