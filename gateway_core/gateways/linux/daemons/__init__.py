"""Daemons that the core configures at a commit, and the sessions of the daemons that are sources."""
