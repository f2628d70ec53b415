"""Netlink: reads, changes and watches the network of the kernel."""
