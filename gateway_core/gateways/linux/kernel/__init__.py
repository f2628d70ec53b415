"""The kernel's network, by netlink: read in bulk, changed and watched."""
