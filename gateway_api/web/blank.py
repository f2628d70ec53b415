"""A Flask application with nothing in it but its parts."""

from flask import Flask

from gateway_api.services import Services
from gateway_api.token_services import TokenServices
from gateway_api.web import context


def blank_app(services: Services | TokenServices) -> Flask:
    """Takes a path as it is: no redirect, whose page would be HTML, and no options nobody asked for."""
    app = Flask("gateway_api", static_folder=None)
    app.url_map.merge_slashes = False
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    context.install(app, services)
    return app
