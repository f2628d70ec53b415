"""Steering to the CGNAT appliance."""

from typing import Any

from flask import Blueprint, Response

from gateway_api.web import access, envelope, parse, responses, whole
from gateway_api.web.context import daemon
from gateway_api.web.schemas.queries import ListQuery
from gateway_api.web.schemas.records import listing_of
from gateway_api.web.schemas.sessions import CgnatSession, CgnatStats

routes = Blueprint("cgnat", __name__, url_prefix="/api/v1/cgnat")


@routes.get("/sessions")
@access.any_role
@responses.data(listing_of("sessions", CgnatSession))
@parse.query(ListQuery)
@whole.shared
def sessions(query: dict[str, Any]) -> Response:
    """The sessions that go through the CGNAT VRF."""
    return envelope.ok(daemon().list_cgnat_sessions(**query))


@routes.get("/stats")
@access.any_role
@responses.data(CgnatStats)
def stats() -> Response:
    """How many sessions are steered, and how many have an address of their own."""
    counts = daemon().statistics()
    return envelope.ok(
        {
            "vrf_steered_sessions": counts.vrf_steered_sessions,
            "public_ip_sessions": counts.public_ip_sessions,
            "total_sessions": counts.active_sessions,
        }
    )
