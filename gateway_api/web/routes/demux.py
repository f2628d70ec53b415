"""The component that makes a VLAN sub-interface when its first subscriber comes."""

from typing import Any

from flask import Blueprint, Response

from gateway_api.web import access, parse, responses
from gateway_api.web.configuration_records import DemuxConfiguration
from gateway_api.web.context import configuration, daemon
from gateway_api.web.records import listing
from gateway_api.web.schemas.queries import ListQuery
from gateway_api.wire.core.network import DemuxReply

routes = Blueprint("demux", __name__, url_prefix="/api/v1/demux")


@routes.get("/config")
@access.any_role
@responses.data(DemuxConfiguration)
def demux_configuration() -> Response:
    """The demux section of the running configuration."""
    sections, _ = configuration().running()
    return responses.ok(sections.get("demux", {}))


@routes.get("/state")
@access.any_role
@responses.data(listing(DemuxReply))
@parse.list_query(ListQuery)
def state(query: dict[str, Any]) -> Response:
    """The VLANs under management, and how many the limits have refused."""
    return responses.ok(daemon().demux_state(**query))
