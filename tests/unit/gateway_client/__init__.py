"""Tests of the HTTPS client of a gateway."""
