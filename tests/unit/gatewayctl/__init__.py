"""Each module of `gatewayctl` by itself."""
