"""The sessions of a gateway, and their events."""
