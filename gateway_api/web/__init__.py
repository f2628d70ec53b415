"""The WSGI application: routes, and what they share."""
