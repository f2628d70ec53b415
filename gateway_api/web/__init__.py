"""The WSGI application: the routes, and the modules that the routes share."""
