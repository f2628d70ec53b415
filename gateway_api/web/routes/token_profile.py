"""The alternative profile: seven paths, behind one token."""

from typing import Any

import msgspec
from flask import Blueprint, Response

from gateway_api.auth.static_token import AUTHOR
from gateway_api.web import audit, envelope, parse, whole
from gateway_api.web.context import configuration, daemon, token_services
from gateway_api.web.routes.configuration import committed_response, tagged
from gateway_api.web.schemas.queries import ListQuery, SubscribersQuery
from gateway_api.web.subscriber import subscriber, subscribers
from gateway_api.web.uptime import uptime

#: The newest revision in the archive, once another runs.
_WHAT_RAN = 1

routes = Blueprint("token_profile", __name__, url_prefix="/api/v1")


@routes.get("/subscribers")
@parse.query(SubscribersQuery)
@whole.shared
def index(query: dict[str, Any]) -> Response:
    """All sessions that fit the filters, or a page of them."""
    found = daemon().list_sessions(**query)
    listed = subscribers(found.pop("sessions"), token_services().clock())
    return envelope.ok({"subscribers": listed, **found})


@routes.get("/subscribers/<id>")
def show(id: str) -> Response:
    """One session with its counters."""
    session = daemon().session(parse.session_id(id))
    return envelope.ok(subscriber(session, token_services().clock()))


@routes.delete("/subscribers/<id>")
def disconnect(id: str) -> Response:
    """Ends a session; when the answer comes, it is gone."""
    session = parse.session_id(id)
    audit.note_before(lambda: daemon().glance(session))
    daemon().disconnect_session(session)
    return envelope.ok({"message": f"Session {session} disconnected"})


@routes.get("/vlans")
@parse.query(ListQuery)
@whole.shared
def vlans(query: dict[str, Any]) -> Response:
    """The VLAN sub-interfaces that the demux component made."""
    return envelope.ok(daemon().list_vlans(**query))


@routes.get("/config")
def running() -> Response:
    """All sections of what runs, secrets masked."""
    return tagged(*configuration().running())


@routes.put("/config")
@parse.document
def replace(document: dict[str, Any]) -> Response:
    """Makes a whole configuration run, or changes nothing. 409 while somebody has staged something."""
    committed = configuration().replace(document, AUTHOR, parse.if_match())
    audit.note(after=committed)
    if committed.committed:
        audit.note_before(lambda: {"diff": configuration().compare(_WHAT_RAN).diff})
    return committed_response(committed)


@routes.get("/system/status")
def status() -> Response:
    """What this gateway is, and how it fares; 500 when the core can't be asked."""
    health = daemon().health()
    since = {"uptime": uptime(0, health.uptime_seconds), "core_reachable": True}
    return envelope.ok({**msgspec.structs.asdict(health), **since})
