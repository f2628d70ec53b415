"""Commands of `gatewayctl`, one module per subject. Most commands return a result, which the module `cli`
shows."""
