"""What this gateway is, and how it fares."""

from flask import Blueprint, Response

from gateway_api.version import PRODUCT, VERSION
from gateway_api.web import access, responses
from gateway_api.web.context import daemon
from gateway_api.web.records import Version
from gateway_api.wire.core.sessions import Health

routes = Blueprint("system", __name__, url_prefix="/api/v1")

COMPONENT = "gateway-api"


@routes.get("/system/version")
@access.always
@responses.data(Version)
def version() -> Response:
    """Answered without the core, so that it tells which API it is that can't reach it."""
    return responses.ok(Version(PRODUCT, VERSION, COMPONENT))


@routes.get("/health")
@routes.get("/system/health")
@access.always
@responses.data(Health)
def health() -> Response:
    """Up, with so many sessions, for so long: or 500 when the core isn't."""
    return responses.ok(daemon().health())
