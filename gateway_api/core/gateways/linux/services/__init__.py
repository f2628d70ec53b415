"""The daemons beside the core: their units, and the files that they run by."""
