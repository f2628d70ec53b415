"""Each module of `gateway_core` by itself."""
