"""What tests share: running gateways, clients, clocks and stand-ins."""
