"""What a view can reach: the parts of its worker, and the caller."""

from typing import cast

from flask import Flask, current_app, g, request

from gateway_api.audit.log import AuditLog
from gateway_api.auth.tokens import Claims
from gateway_api.base import http
from gateway_api.daemon.commands import ConfigurationCommands, Daemon
from gateway_api.hub.client import Hub
from gateway_api.web.request_id import request_id
from gateway_api.web.services import Parts, Services

EXTENSION = "gateway-api"


def install(app: Flask, parts: Parts) -> None:
    """Gives the application its parts."""
    app.extensions[EXTENSION] = parts


def parts() -> Parts:
    return cast(Parts, current_app.extensions[EXTENSION])


def services() -> Services:
    """In the profile with users only."""
    found = parts()
    if not isinstance(found, Services):
        raise TypeError("this profile has no users")
    return found


def audit_log() -> AuditLog:
    return parts().audit


def daemon() -> Daemon:
    return parts().daemon.for_request(request_id())


def configuration() -> ConfigurationCommands:
    return parts().configuration.for_request(request_id())


def hub() -> Hub:
    return services().hub


def caller() -> Claims:
    """The caller of this request. In views that require a user's token."""
    return cast(Claims, g.caller)


def identify(username: str, role: str) -> None:
    """Gives the log lines of the request at hand its user."""
    request.environ |= {http.USER: username, http.ROLE: role}
