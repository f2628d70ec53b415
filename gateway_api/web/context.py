"""What a view can reach: the parts of its worker, and who is calling."""

from typing import cast

from flask import Flask, current_app, g, request

from gateway_api import logs
from gateway_api.auth.tokens import Claims
from gateway_api.daemon.commands import ApiAccess, Daemon
from gateway_api.daemon.configuration import ConfigurationCommands
from gateway_api.hub.client import Hub
from gateway_api.services import Services

_EXTENSION = "gateway-api"


def install(app: Flask, services: Services) -> None:
    """Gives the application its parts."""
    app.extensions[_EXTENSION] = services


def services() -> Services:
    return cast(Services, current_app.extensions[_EXTENSION])


def daemon() -> Daemon:
    return services().daemon


def configuration() -> ConfigurationCommands:
    return services().configuration


def hub() -> Hub:
    return services().hub


def caller() -> Claims:
    """Who makes the request at hand. Only in views that need a token."""
    return cast(Claims, g.caller)


def api_access() -> ApiAccess:
    """What the running configuration said of the API when the request at hand came in."""
    return cast(ApiAccess, g.api_access)


def identify(username: str, role: str) -> None:
    """Says who makes the request at hand, to all who log it."""
    request.environ |= {logs.USER: username, logs.ROLE: role}
