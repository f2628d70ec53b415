"""How sessions are shaped."""

from typing import Any

from flask import Blueprint, Response

from gateway_api.web import access, envelope, parse, responses, whole
from gateway_api.web.context import daemon
from gateway_api.web.schemas.queries import ListQuery
from gateway_api.web.schemas.records import list_of, listing_of
from gateway_api.web.schemas.sessions import OverheadProfile, SessionQos

routes = Blueprint("qos", __name__, url_prefix="/api/v1/qos")


@routes.get("")
@access.any_role
@responses.data(listing_of("sessions", SessionQos))
@parse.query(ListQuery)
@whole.shared
def index(query: dict[str, Any]) -> Response:
    """The shaping of each session."""
    return envelope.ok(daemon().list_qos(**query))


@routes.get("/profiles")
@access.any_role
@responses.data(list_of("profiles", OverheadProfile))
def profiles() -> Response:
    """The overhead profiles that sessions may have."""
    return envelope.ok(daemon().overhead_profiles())
