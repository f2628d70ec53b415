"""The component that makes a VLAN sub-interface when its first subscriber comes."""

from typing import Any

from flask import Blueprint, Response

from gateway_api.web import access, envelope, parse
from gateway_api.web.context import configuration, daemon
from gateway_api.web.schemas.requests import ListQuery

routes = Blueprint("demux", __name__, url_prefix="/api/v1/demux")


@routes.get("/config")
@access.any_role
def demux_configuration() -> Response:
    """The demux section of the running configuration."""
    sections, _ = configuration().running()
    return envelope.ok(sections.get("demux", {}))


@routes.get("/state")
@access.any_role
@parse.query(ListQuery)
def state(query: dict[str, Any]) -> Response:
    """The VLANs under management, and how many the limits have refused."""
    return envelope.ok(daemon().demux_state(**query))
