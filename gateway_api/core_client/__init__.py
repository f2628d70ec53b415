"""Calls to the core daemon, and its events."""
