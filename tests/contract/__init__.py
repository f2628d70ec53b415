"""What clients of the API can rely on, asked of a running gateway."""
