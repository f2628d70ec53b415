"""The gateway itself: version, health, faults, metrics and audit log."""

from typing import Any

from flask import Blueprint, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from gateway_api.version import PRODUCT, VERSION
from gateway_api.web import access, lists, parse, responses
from gateway_api.web.dependencies import of_core, of_hub
from gateway_api.web.metrics import scrapes
from gateway_api.web.records import AuditRecordList, HealthDetail, Version, listing
from gateway_api.web.schemas.queries import AuditQuery, list_query
from gateway_api.web.services import daemon, services
from gateway_api.wire.core.dependencies import worst
from gateway_api.wire.core.faults import ListFaults
from gateway_api.wire.core.sessions import GetHealth, Health

routes = Blueprint("system", __name__, url_prefix="/api/v1")
audit_log = Blueprint("audit", __name__, url_prefix="/api/v1/audit")
metrics = Blueprint("metrics", __name__)

COMPONENT = "gateway-api"


@routes.get("/system/version")
@access.always
@responses.data(Version)
def version() -> Response:
    """The name and the version of the product. Works without the core daemon."""
    return responses.ok(Version(PRODUCT, VERSION, COMPONENT))


@routes.get("/health")
@routes.get("/system/health")
@access.always
@responses.data(Health)
def health() -> Response:
    """The state of the gateway, its number of sessions and its uptime. 500 if the core is unavailable."""
    return responses.ok(daemon().reply(GetHealth()))


@routes.get("/system/health/detail")
@access.any_role
@access.together
@access.without_core
@responses.data(HealthDetail)
def health_detail() -> Response:
    """The health of what the gateway depends on, and the worst of it. Responds while the core hangs, too."""
    found = (*of_core(daemon()), of_hub(services().hub), *services().host.dependencies())
    return responses.ok(HealthDetail(worst(found), found))


@routes.get("/system/faults")
@access.any_role
@access.together
@responses.data(listing(ListFaults), errors=(501,))
@lists.query(list_query(ListFaults))
def faults(query: dict[str, Any]) -> Response:
    """The faults of the data plane that the core could not repair, the oldest first."""
    return responses.listed(daemon().listed(ListFaults(**query)))


@audit_log.get("")
@access.admin
@responses.data(AuditRecordList)
@parse.query(AuditQuery)
def index(query: dict[str, Any]) -> Response:
    """The records that match the filters, or a page of them, the newest first."""
    found = services().audit.read(**query)
    paged = {} if query["page"] is None else {"next_cursor": found.next_cursor}
    return responses.ok({"records": found.records, "count": len(found.records), **paged})


@metrics.get("/metrics")
@access.always
@responses.ViewResponse(media_type="text/plain")
def scrape() -> Response:
    """Metrics in Prometheus' text format 0.0.4, for any Accept header. At most a second old."""
    return Response(scrapes().latest(), content_type=CONTENT_TYPE_PLAIN_0_0_4)
