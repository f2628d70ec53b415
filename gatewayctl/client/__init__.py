"""A client of a gateway over HTTPS, for programs with a terminal or without: requests, logins, events."""
