"""Steering to the CGNAT appliance."""

from typing import Any

from flask import Blueprint, Response

from gateway_api.web import access, parse, responses
from gateway_api.web.context import daemon
from gateway_api.web.records import CgnatStats, listing
from gateway_api.web.schemas.queries import ListQuery
from gateway_api.wire.core.network import CgnatSessionsReply

routes = Blueprint("cgnat", __name__, url_prefix="/api/v1/cgnat")


@routes.get("/sessions")
@access.any_role
@responses.data(listing(CgnatSessionsReply))
@parse.list_query(ListQuery)
def sessions(query: dict[str, Any]) -> Response:
    """The sessions that go through the CGNAT VRF."""
    return responses.ok(daemon().list_cgnat_sessions(**query))


@routes.get("/stats")
@access.any_role
@responses.data(CgnatStats)
def stats() -> Response:
    """How many sessions are steered, and how many have an address of their own."""
    counts = daemon().statistics()
    return responses.ok(
        CgnatStats(counts.vrf_steered_sessions, counts.public_ip_sessions, counts.active_sessions)
    )
