"""The tests, most of them against a running core and a running API."""
