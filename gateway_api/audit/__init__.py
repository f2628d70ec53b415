"""The audit log: changes and rejected requests, on disk, up to a size."""
