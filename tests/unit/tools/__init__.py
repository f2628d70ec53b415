"""Each module of `tools/` by itself."""
