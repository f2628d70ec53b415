"""The running configuration."""

from flask import Blueprint, Response

from gateway_api.web import access, envelope
from gateway_api.web.context import daemon

routes = Blueprint("configuration", __name__, url_prefix="/api/v1/system/config")


@routes.get("")
@access.any_role
def running() -> Response:
    """All sections, secrets masked, with an entity tag that changes whenever they do."""
    sections, etag = daemon().configuration()
    response = envelope.ok(sections)
    response.set_etag(etag)
    return response
