"""The contracts of the core and the hub, varlink, and the formats of values, for all programs."""
