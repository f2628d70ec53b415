"""The interfaces of the system."""

from typing import Any

from flask import Blueprint, Response

from gateway_api.web import access, parse, responses
from gateway_api.web.context import daemon
from gateway_api.web.records import listing
from gateway_api.web.schemas.queries import ListQuery
from gateway_api.wire.core.network import InterfacesReply, VlansReply

routes = Blueprint("interfaces", __name__, url_prefix="/api/v1/interfaces")


@routes.get("")
@access.any_role
@responses.data(listing(InterfacesReply))
@parse.list_query(ListQuery)
def index(query: dict[str, Any]) -> Response:
    """All of them: trunk, loopback, VLAN, ppp, IFB and VRF."""
    return responses.ok(daemon().list_interfaces(**query))


@routes.get("/vlans")
@access.any_role
@responses.data(listing(VlansReply))
@parse.list_query(ListQuery)
def vlans(query: dict[str, Any]) -> Response:
    """The VLAN sub-interfaces that the demux component made."""
    return responses.ok(daemon().list_vlans(**query))
