"""A Flask application with nothing in it but its parts."""

from flask import Flask, Request
from werkzeug.exceptions import NotFound
from werkzeug.routing import MapAdapter

from gateway_api.web import context
from gateway_api.web.services import Services
from gateway_api.web.token_services import TokenServices


class _Flask(Flask):
    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        # werkzeug would take away all slashes but one.
        if request is not None and request.environ["PATH_INFO"].startswith("//"):
            raise NotFound
        return super().create_url_adapter(request)


def blank_app(services: Services | TokenServices) -> Flask:
    """Takes a path as it is: no redirect, whose page would be HTML, and no options nobody asked for."""
    app = _Flask("gateway_api", static_folder=None)
    app.url_map.merge_slashes = False
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    context.install(app, services)
    return app
