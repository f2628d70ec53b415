"""Who a caller is, and whether to believe it."""
