"""The hub, one for all workers: webhooks and their deliveries."""
