"""What a view can reach: the parts of its worker, and who is calling."""

from typing import cast

from flask import Flask, current_app, g, request

from gateway_api.audit.log import AuditLog
from gateway_api.auth.tokens import Claims
from gateway_api.base import logs
from gateway_api.daemon.commands import ApiAccess, Daemon
from gateway_api.daemon.configuration import ConfigurationCommands
from gateway_api.daemon.whole_lists import WholeLists
from gateway_api.hub.client import Hub
from gateway_api.web.request_id import request_id
from gateway_api.web.services import Services
from gateway_api.web.token_services import TokenServices

_EXTENSION = "gateway-api"


def install(app: Flask, services: Services | TokenServices) -> None:
    """Gives the application its parts."""
    app.extensions[_EXTENSION] = services


def services() -> Services:
    return cast(Services, current_app.extensions[_EXTENSION])


def token_services() -> TokenServices:
    """In the alternative profile, instead of the above."""
    return cast(TokenServices, current_app.extensions[_EXTENSION])


def audit_log() -> AuditLog:
    return _parts().audit


def daemon() -> Daemon:
    return _parts().daemon.for_request(request_id())


def configuration() -> ConfigurationCommands:
    return _parts().configuration.for_request(request_id())


def whole_lists() -> WholeLists:
    return _parts().whole_lists


def hub() -> Hub:
    return services().hub


def caller() -> Claims:
    """Who makes the request at hand. Only in views that need a token."""
    return cast(Claims, g.caller)


def api_access() -> ApiAccess:
    """What the running configuration said of the API when the request at hand came in."""
    return cast(ApiAccess, g.api_access)


def _parts() -> Services | TokenServices:
    return cast(Services | TokenServices, current_app.extensions[_EXTENSION])


def identify(username: str, role: str) -> None:
    """Says who makes the request at hand, to all who log it."""
    request.environ |= {logs.USER: username, logs.ROLE: role}
