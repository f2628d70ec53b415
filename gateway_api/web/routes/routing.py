"""Routes and routing neighbours."""

from typing import Any

from flask import Blueprint, Response

from gateway_api.web import access, parse, responses
from gateway_api.web.context import daemon
from gateway_api.web.records import FrrSummary, listing
from gateway_api.web.schemas.queries import ListQuery
from gateway_api.wire.core.network import RoutesReply

routes = Blueprint("routing", __name__, url_prefix="/api/v1/routing")


@routes.get("/bgp/summary")
@access.any_role
@responses.data(FrrSummary)
def bgp_summary() -> Response:
    """The routing daemon's own summary of its BGP neighbours; `{}` without BGP."""
    return responses.ok(daemon().bgp_summary())


@routes.get("/routes")
@access.any_role
@responses.data(listing(RoutesReply))
@parse.list_query(ListQuery)
def kernel_routes(query: dict[str, Any]) -> Response:
    """The kernel's routes, the subscribers' host routes included."""
    return responses.ok(daemon().list_routes(**query))
