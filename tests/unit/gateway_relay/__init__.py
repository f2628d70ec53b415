"""Tests of the relay to NATS JetStream."""
