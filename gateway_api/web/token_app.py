"""The WSGI application of the alternative profile, of the same parts. Starts nothing."""

from flask import Flask

from gateway_api.web import audit, errors, headers, parse, request_id, token_access
from gateway_api.web.blank import blank_app
from gateway_api.web.routes import token_profile
from gateway_api.web.token_services import TokenServices


def create_token_app(services: TokenServices) -> Flask:
    """The application of one worker."""
    app = blank_app(services)
    app.register_blueprint(token_profile.routes)
    errors.install(app)
    request_id.install(app)
    # In this order: who has no token isn't told what is wrong with how something was asked for.
    token_access.install(app)
    audit.install(app)
    parse.install(app)
    headers.install(app)
    return app
