"""The base of the other packages of the API."""
