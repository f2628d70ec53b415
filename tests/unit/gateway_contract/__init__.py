"""Each module of `gateway_contract` by itself."""
