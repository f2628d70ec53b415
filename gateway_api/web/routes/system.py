"""Views of the gateway itself: version, health, faults, metrics and audit log."""

from flask import Blueprint, Response
from msgspec import UNSET
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from gateway_api.audit.record import Filter
from gateway_api.web import records
from gateway_api.web.access import ADMIN, ALWAYS, ANY_ROLE
from gateway_api.web.health import check_core, check_hub
from gateway_api.web.metrics import get_scrape_cache
from gateway_api.web.operation import cast_records, list_operation, operation
from gateway_api.web.schemas import queries
from gateway_api.web.services import core, get_user_services, hub
from gateway_contract.contract import Page
from gateway_contract.core.health import ListFaults, find_worst_state
from gateway_contract.core.sessions import GetHealth, Health
from gateway_contract.core_client import ListParts
from gateway_contract.version import PRODUCT, VERSION

COMPONENT = "gateway-api"
#: Timeout for the core's reply, in seconds. Monitors get a response within a second even if the core does not
#: reply.
_HEALTH_TIMEOUT = 0.8

system = Blueprint("system", __name__, url_prefix="/api/v1")
audit_log = Blueprint("audit", __name__, url_prefix="/api/v1/audit")
metrics = Blueprint("metrics", __name__)


@system.get("/system/version", endpoint="version")
@operation(ALWAYS)
def show_version() -> records.Version:
    """Return the name and the version of the product, also while the core daemon is unavailable."""
    return records.Version(PRODUCT, VERSION, COMPONENT)


@system.get("/health", endpoint="health")
@system.get("/system/health", endpoint="health")
@operation(ALWAYS)
def show_health() -> Health:
    """Return the state of the gateway, its number of sessions and its uptime. 500 if the core is
    unavailable."""
    return core().call(GetHealth(), timeout=_HEALTH_TIMEOUT)


@system.get("/system/health/detail", endpoint="health_detail")
@operation(ANY_ROLE, without_core=True)
def show_health_detail() -> records.HealthDetail:
    """Return the health of the gateway's dependencies, and the worst state of them, also while the core does
    not reply."""
    result = (*check_core(core()), check_hub(hub()), *get_user_services().host.check())
    return records.HealthDetail(find_worst_state(result), result)


@system.get("/system/faults", endpoint="faults")
@list_operation(ListFaults, errors=(501,))
def list_faults(query: queries.ListSelection) -> ListParts:
    """List the faults of the data plane that the core could not repair, oldest first."""
    return core().call_list(query.make_call(ListFaults))


@audit_log.get("", endpoint="index")
@operation(ADMIN, query=queries.AuditQuery)
def list_audit_records(query: queries.Search[Filter, Page | None]) -> records.AuditRecordList:
    """List the audit records that match the filters, or a page of them, newest first."""
    result = get_user_services().audit.read(query.conditions, query.page)
    cursor = UNSET if query.page is None else result.next_cursor
    matching = cast_records(result.records, records.AuditRecord)
    return records.AuditRecordList(records=matching, count=len(matching), next_cursor=cursor)


@metrics.get("/metrics")
@operation(ALWAYS, media_type="text/plain", is_compressible=True)
def scrape() -> Response:
    """Return the metrics in Prometheus' text format 0.0.4, for any Accept header. The metrics are at most one
    second old."""
    return Response(get_scrape_cache().read(), content_type=CONTENT_TYPE_PLAIN_0_0_4)
