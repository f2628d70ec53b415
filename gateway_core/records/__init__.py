"""The records and lists of the core: clocks, moments, orders of things, pages, the log of changes."""
