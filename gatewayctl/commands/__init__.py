"""Commands of `gatewayctl`, one module per subject. Most call a gateway and return a result, which `cli`
shows."""
