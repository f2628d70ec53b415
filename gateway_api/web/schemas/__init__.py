"""The shapes of the contract, as marshmallow schemas."""
