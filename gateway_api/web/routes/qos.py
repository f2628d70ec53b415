"""How sessions are shaped."""

from typing import Any

from flask import Blueprint, Response

from gateway_api.web import access, parse, responses
from gateway_api.web.context import daemon
from gateway_api.web.records import listing
from gateway_api.web.schemas.queries import ListQuery
from gateway_api.wire.core.network import OverheadProfilesReply, QosReply

routes = Blueprint("qos", __name__, url_prefix="/api/v1/qos")


@routes.get("")
@access.any_role
@responses.data(listing(QosReply))
@parse.list_query(ListQuery)
def index(query: dict[str, Any]) -> Response:
    """The shaping of each session."""
    return responses.ok(daemon().list_qos(**query))


@routes.get("/profiles")
@access.any_role
@responses.data(listing(OverheadProfilesReply))
def profiles() -> Response:
    """The overhead profiles that sessions may have."""
    return responses.ok(daemon().overhead_profiles())
