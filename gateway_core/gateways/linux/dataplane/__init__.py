"""Data plane: rate limits, routes and packet filters of the sessions in the kernel."""
