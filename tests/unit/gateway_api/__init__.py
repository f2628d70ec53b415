"""Each module of `gateway_api` by itself."""
