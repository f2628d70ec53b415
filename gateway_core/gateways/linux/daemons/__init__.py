"""Daemons beside the core: their configuration at a commit, and the sessions of the sources among them."""
