"""Command line of the API: an HTTPS client for people and scripts."""
