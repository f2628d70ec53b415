"""The gateway itself: version, health, faults, metrics and audit log."""

from typing import Any

from flask import Response
from msgspec import UNSET
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from gateway_api.version import PRODUCT, VERSION
from gateway_api.web.dependencies import of_core, of_hub
from gateway_api.web.lists import listed
from gateway_api.web.metrics import scrapes
from gateway_api.web.operation import ADMIN, ALWAYS, ANY_ROLE, GET, Routes, passed
from gateway_api.web.records import AuditRecord, AuditRecordList, HealthDetail, Version
from gateway_api.web.schemas.queries import AuditQuery
from gateway_api.web.services import daemon, services
from gateway_api.wire.core.health import Dependency, ListFaults, worst
from gateway_api.wire.core.sessions import GetHealth, Health

COMPONENT = "gateway-api"
#: Seconds for the core's reply. Monitors get the response within a second, also while the core hangs.
_HEALTH_TIMEOUT = 0.8


def version() -> Version:
    """The name and the version of the product. Works without the core daemon."""
    return Version(PRODUCT, VERSION, COMPONENT)


def health() -> Health:
    """The state of the gateway, its number of sessions and its uptime. 500 if the core is unavailable."""
    return daemon().reply(GetHealth(), timeout=_HEALTH_TIMEOUT)


def health_detail(core: list[Dependency]) -> HealthDetail:
    """The health of what the gateway depends on, and the worst of it. Responds while the core hangs, too."""
    found = (*core, of_hub(services().hub), *services().host.dependencies())
    return HealthDetail(worst(found), found)


def audit_records(query: dict[str, Any]) -> AuditRecordList:
    """The records that match the filters, or a page of them, the newest first."""
    found = services().audit.read(**query)
    cursor = UNSET if query["page"] is None else found.next_cursor
    records = passed(found.records, AuditRecord)
    return AuditRecordList(records=records, count=len(records), next_cursor=cursor)


def scrape() -> Response:
    """Metrics in Prometheus' text format 0.0.4, for any Accept header. At most a second old."""
    return Response(scrapes().latest(), content_type=CONTENT_TYPE_PLAIN_0_0_4)


routes = Routes(
    "system",
    "/api/v1",
    GET("/system/version", version, ALWAYS),
    GET("/system/health", health, ALWAYS),
    GET("/health", health, ALWAYS),
    GET("/system/health/detail", health_detail, ANY_ROLE, read=of_core, without_core=True),
    listed(
        "/system/faults",
        ListFaults,
        "The faults of the data plane that the core could not repair, the oldest first.",
        name="faults",
        errors=(501,),
    ),
)
audit_log = Routes(
    "audit",
    "/api/v1/audit",
    GET("", audit_records, ADMIN, name="index", query=AuditQuery),
)
metrics = Routes("metrics", "", GET("/metrics", scrape, ALWAYS, media_type="text/plain", compressed=True))
