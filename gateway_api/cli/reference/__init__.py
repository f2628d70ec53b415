"""The pages of the reference that come from the code, as MyST Markdown below `docs/reference`."""
