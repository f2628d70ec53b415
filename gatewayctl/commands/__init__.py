"""Commands of `gatewayctl`, one module per subject. Most return a result, which `cli` shows."""
