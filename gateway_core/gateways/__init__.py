"""The gateways a core can drive."""
