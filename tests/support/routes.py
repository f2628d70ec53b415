"""The route table as the contract has it: who may call what, and what comes back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway_api.base.fields import Schema, Text, Whole
from gateway_api.web.schemas import audit, configuration, network, sessions, system, webhooks
from gateway_api.web.schemas.records import Message, Record, list_of

ALWAYS, OPEN, ANY_ROLE, ADMIN = "always", "open", "any role", "admin"


@dataclass(frozen=True)
class Route:
    """`path` is relative to `/api/v1`; `{id}` stands for a session, `{revision}` for an
    archived one, `{webhook}` for a registration.
    `data` is the schema of the envelope's data, `nothing` says that it is null; `bare` is the schema of a
    document without envelope. `body` is one that works and must be, `may_have` one that may be left out;
    `free` are fields that take any JSON. A route that `streams` never ends by itself. One that has
    `more_for_admins` refuses a part of what it does to others."""

    method: str
    path: str
    access: str
    data: type[Schema] | None = None
    bare: type[Schema] | None = None
    body: Mapping[str, Any] | None = None
    paged: type[Schema] | None = None
    nothing: bool = False
    may_have: Mapping[str, Any] | None = None
    free: tuple[str, ...] = ()
    status: int = 200
    streams: bool = False
    part_of_a_page: bool = False
    more_for_admins: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def page_of(name: str, record: type[Record], **more: Any) -> type[Schema]:
    """The schema of a page of a list, with all fields that a page may have."""
    fields = {**more, "total": Whole(), "next_cursor": Text(allow_none=True)}
    return list_of(name, record, **fields)


def _list(path: str, name: str, record: type[Record], **more: Any) -> Route:
    return Route(
        "GET",
        path,
        ANY_ROLE,
        data=list_of(name, record, **more),
        paged=page_of(name, record, **more),
    )


_RECEIVER = {"url": "http://127.0.0.1:9/hook", "events": ["session.up"]}
_HOSTNAME = {"path": "system.hostname", "value": "bng2"}
_CONFIRM = {"confirm_seconds": 600}
_RATE = {"path": "qos.default_down", "value": "150mbit"}
_RATES = {"rate_down": "50 Mbit", "rate_up": "10mbps"}

ROUTES = (
    Route("POST", "/auth/login", OPEN, bare=system.Token, body={"username": "x", "password": "y"}),
    Route("POST", "/auth/logout", ANY_ROLE, data=Message),
    Route(
        "POST",
        "/auth/logout-everywhere",
        ANY_ROLE,
        data=Message,
        may_have={"username": "operator"},
        more_for_admins=True,
    ),
    _list("/subscribers", "sessions", sessions.SessionSummary),
    Route("GET", "/subscribers/summary", ANY_ROLE, data=sessions.SessionCounts),
    Route("GET", "/subscribers/{id}", ANY_ROLE, data=sessions.SessionDetail),
    Route("DELETE", "/subscribers/{id}", ADMIN, data=Message),
    Route(
        "POST",
        "/subscribers/disconnect-by-interface",
        ADMIN,
        data=sessions.InterfaceDisconnected,
        body={"interface": "lo"},
    ),
    Route("PUT", "/subscribers/{id}/rate", ADMIN, data=sessions.RateChanged, body=_RATES),
    Route("GET", "/system/version", ALWAYS, data=system.Version),
    Route("GET", "/system/health", ALWAYS, data=system.Health),
    Route("GET", "/health", ALWAYS, data=system.Health),
    Route("GET", "/system/config", ANY_ROLE, data=configuration.Configuration),
    # In an order in which each works after the one before.
    Route("POST", "/system/config/set", ADMIN, nothing=True, body=_HOSTNAME, free=("value",)),
    Route("POST", "/system/config/edit", ADMIN, nothing=True, body={"operations": [{"op": "set", **_RATE}]}),
    Route(
        "POST",
        "/system/config/commit",
        ADMIN,
        data=configuration.Committed,
        may_have={"confirm_seconds": 600},
    ),
    Route("POST", "/system/config/confirm", ADMIN, data=Message),
    Route("POST", "/system/config/rollback", ADMIN, data=configuration.RolledBack, body={"revision": 1}),
    Route("GET", "/system/config/candidate", ADMIN, data=configuration.Candidate),
    Route("GET", "/system/config/compare", ADMIN, data=configuration.Difference),
    Route("POST", "/system/config/delete", ADMIN, nothing=True, body={"path": "qos.default_down"}),
    Route("POST", "/system/config/discard", ADMIN, nothing=True),
    Route("GET", "/system/config/archive", ANY_ROLE, data=list_of("revisions", configuration.ArchivedCommit)),
    Route("GET", "/system/config/archive/{revision}", ANY_ROLE, data=configuration.ArchivedRevision),
    _list("/interfaces", "interfaces", network.Interface),
    _list("/interfaces/vlans", "vlans", network.Vlan),
    _list("/qos", "sessions", sessions.SessionQos),
    Route("GET", "/qos/profiles", ANY_ROLE, data=list_of("profiles", sessions.OverheadProfile)),
    Route("GET", "/routing/bgp/summary", ANY_ROLE, data=network.FrrSummary),
    _list("/routing/routes", "routes", network.Route),
    _list("/cgnat/sessions", "sessions", sessions.CgnatSession),
    Route("GET", "/cgnat/stats", ANY_ROLE, data=sessions.CgnatStats),
    Route("GET", "/demux/config", ANY_ROLE, data=configuration.DemuxConfiguration),
    _list("/demux/state", "vlans", network.DemuxVlan, rate_limited_total=network.rate_limited_total()),
    # Without an end, and without JSON: test_events has it.
    Route("GET", "/events/subscribers", ANY_ROLE, streams=True),
    Route("POST", "/webhooks", ADMIN, data=webhooks.Webhook, body=_RECEIVER, status=201),
    Route("GET", "/webhooks", ANY_ROLE, data=webhooks.Webhooks),
    Route("GET", "/webhooks/{webhook}", ANY_ROLE, data=webhooks.Webhook),
    Route("GET", "/webhooks/{webhook}/deliveries", ANY_ROLE, data=webhooks.Deliveries),
    Route("POST", "/webhooks/{webhook}/test", ADMIN, data=webhooks.TestSent),
    Route("DELETE", "/webhooks/{webhook}", ADMIN, data=Message),
    Route("GET", "/audit", ADMIN, data=list_of("records", audit.AuditRecord)),
    Route("GET", "/metrics", ALWAYS),
    Route("GET", "/openapi.json", OPEN, bare=system.OpenApi),
    Route("GET", "/docs", OPEN),
    # What the page brings with it.
    Route("GET", "/docs/{digest}/{name}", OPEN, part_of_a_page=True),
)

#: The live page and its parts, which aren't below `/api/v1` and no JSON: test_page has them.
PAGES = ("/", "/page/{name}")
