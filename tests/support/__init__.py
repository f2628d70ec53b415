"""Shared by tests: running gateways, clients, clocks and faulty peers."""
