"""The audit log: changes and rejected requests."""

from typing import Any

from flask import Blueprint, Response

from gateway_api.web import access, parse, responses
from gateway_api.web.context import services
from gateway_api.web.records import AuditRecordList
from gateway_api.web.schemas.queries import AuditQuery

routes = Blueprint("audit", __name__, url_prefix="/api/v1/audit")


@routes.get("")
@access.admin
@responses.data(AuditRecordList)
@parse.query(AuditQuery)
def index(query: dict[str, Any]) -> Response:
    """The records that fit the filters, or a page of them, the newest first."""
    found = services().audit.read(**query)
    paged = {} if query["page"] is None else {"next_cursor": found.next_cursor}
    return responses.ok({"records": found.records, "count": len(found.records), **paged})
