"""The contracts with other processes: the core, the hub, and varlink, which carries them."""
