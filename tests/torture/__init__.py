"""Crashes, floods and large numbers."""
