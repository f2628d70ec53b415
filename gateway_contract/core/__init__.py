"""The contract with the core daemon."""
