"""Records and lists of the core: clocks, sorted collections, pages, the log of changes."""
