"""What is one for all workers and outlives any of them: webhooks and their deliveries."""
