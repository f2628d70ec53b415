"""Logins and access tokens."""
