"""Relay of a gateway: publishes what happens on the gateway to NATS JetStream."""
