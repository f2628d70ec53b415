"""Client of a gateway over HTTPS, with or without a terminal: requests, logins, event streams."""
