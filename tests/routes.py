"""The route table as the contract has it: who may call what, and what comes back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway_api.validation import Schema
from gateway_api.web.schemas import records as schemas
from gateway_api.web.schemas.records import list_of

ALWAYS, OPEN, ANY_ROLE, ADMIN = "always", "open", "any role", "admin"


@dataclass(frozen=True)
class Route:
    """`path` is relative to `/api/v1`; `{id}` stands for a session. `data` is the schema of the
    envelope's data, `bare` that of a document without envelope. `body` is one that works."""

    method: str
    path: str
    access: str
    data: type[Schema] | None = None
    bare: type[Schema] | None = None
    body: Mapping[str, Any] | None = None
    paged: type[Schema] | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def _list(path: str, name: str, record: type[schemas.Record], **more: Any) -> Route:
    return Route(
        "GET",
        path,
        ANY_ROLE,
        data=list_of(name, record, **more),
        paged=list_of(name, record, paged=True, **more),
    )


_RATES = {"rate_down": "50 Mbit", "rate_up": "10mbps"}

ROUTES = (
    Route("POST", "/auth/login", OPEN, bare=schemas.Token, body={"username": "x", "password": "y"}),
    Route("POST", "/auth/logout", ANY_ROLE, data=schemas.Message),
    _list("/subscribers", "sessions", schemas.SessionSummary),
    Route("GET", "/subscribers/summary", ANY_ROLE, data=schemas.SessionCounts),
    Route("GET", "/subscribers/{id}", ANY_ROLE, data=schemas.SessionDetail),
    Route("DELETE", "/subscribers/{id}", ADMIN, data=schemas.Message),
    Route(
        "POST",
        "/subscribers/disconnect-by-interface",
        ADMIN,
        data=schemas.InterfaceDisconnected,
        body={"interface": "nowhere0"},
    ),
    Route("PUT", "/subscribers/{id}/rate", ADMIN, data=schemas.RateChanged, body=_RATES),
    Route("GET", "/system/version", ALWAYS, data=schemas.Version),
    Route("GET", "/system/health", ALWAYS, data=schemas.Health),
    Route("GET", "/health", ALWAYS, data=schemas.Health),
    Route("GET", "/system/config", ANY_ROLE, data=schemas.Configuration),
    _list("/interfaces", "interfaces", schemas.Interface),
    _list("/interfaces/vlans", "vlans", schemas.Vlan),
    _list("/qos", "sessions", schemas.SessionQos),
    Route("GET", "/qos/profiles", ANY_ROLE, data=list_of("profiles", schemas.OverheadProfile)),
    Route("GET", "/routing/bgp/summary", ANY_ROLE, data=schemas.FrrSummary),
    _list("/routing/routes", "routes", schemas.Route),
    _list("/cgnat/sessions", "sessions", schemas.CgnatSession),
    Route("GET", "/cgnat/stats", ANY_ROLE, data=schemas.CgnatStats),
    Route("GET", "/demux/config", ANY_ROLE, data=schemas.DemuxConfiguration),
    _list("/demux/state", "vlans", schemas.DemuxVlan, rate_limited_total=schemas.Whole()),
    Route("GET", "/metrics", ALWAYS),
)
