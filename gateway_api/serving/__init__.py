"""Connections of one worker, and what keeps any of them from holding up the others."""
