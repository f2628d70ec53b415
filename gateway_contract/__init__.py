"""What the programs share: the contracts of the core and the hub, varlink, and the formats of values."""
