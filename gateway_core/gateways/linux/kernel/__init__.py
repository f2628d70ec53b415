"""Access to the network of the kernel through netlink: reads, changes and events."""
