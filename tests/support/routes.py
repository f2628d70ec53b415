"""The route table of the contract: access and response of each route."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from gateway_api.hub import interface as hub
from gateway_api.web import records
from gateway_api.web.records import Message, make_list_record
from gateway_contract.contract import PagedMethod, get_reply_type
from gateway_contract.core import configuration, health, jobs, network, sessions, traffic

ALWAYS, OPEN, ANY_ROLE, ADMIN = "always", "open", "any role", "admin"


@dataclass(frozen=True)
class Route:
    """A route of the contract. `path` is relative to `/api/v1`; `{id}` stands for a session, `{revision}`
    for an archived one, `{webhook}` for a registration, `{job}` for a job that runs. `data` is the record
    in the envelope, `nothing` means that it is null; `bare` is the record of a response without an
    envelope, `paged` the record of a page. `body` is a required body that works, `may_have` an optional
    one; `free` are fields that take any JSON. A `partial` body may lack fields, and the core checks it. A
    route that `streams` never ends by itself. A route with `more_for_admins` rejects a part of what it
    does for others."""

    method: str
    path: str
    access: str
    data: type[Struct] | None = None
    bare: type[Struct] | None = None
    body: Mapping[str, Any] | None = None
    paged: type[Struct] | None = None
    nothing: bool = False
    may_have: Mapping[str, Any] | None = None
    free: tuple[str, ...] = ()
    partial: bool = False
    status: int = 200
    streams: bool = False
    part_of_a_page: bool = False
    more_for_admins: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def _list(path: str, method: type[PagedMethod[Any]]) -> Route:
    return Route("GET", path, ANY_ROLE, data=make_list_record(method), paged=get_reply_type(method))


_RECEIVER = {"url": "http://127.0.0.1:9/hook", "events": ["session.up"]}
_HOSTNAME = {"path": "system.hostname", "value": "bng2"}
_CONFIRM = {"confirm_seconds": 600}
_RATE = {"path": "qos.default_down", "value": "150mbit"}
#: One direction is enough.
_RATES = {"rate_down": "50 Mbit"}
_NOBODY = {"username": "nobody"}

ROUTES = (
    Route("POST", "/auth/login", OPEN, bare=records.Token, body={"username": "x", "password": "y"}),
    Route("GET", "/auth/token", OPEN, data=records.SignedIn),
    Route("POST", "/auth/logout", ANY_ROLE, data=Message),
    Route(
        "POST",
        "/auth/logout-everywhere",
        ANY_ROLE,
        data=Message,
        may_have={"username": "operator"},
        more_for_admins=True,
    ),
    _list("/subscribers", sessions.ListSessions),
    Route("GET", "/subscribers/summary", ANY_ROLE, data=records.SessionCounts),
    Route("GET", "/subscribers/history", ANY_ROLE, data=records.PastSessionList),
    Route("GET", "/subscribers/{id}/timeline", ANY_ROLE, data=records.TimelineEntryList),
    Route("GET", "/subscribers/failed-sign-ons", ANY_ROLE, data=records.FailedSignOnsList),
    Route("GET", "/subscribers/flapping", ANY_ROLE, data=records.FlappingSubscriberList),
    Route("GET", "/subscribers/{id}", ANY_ROLE, data=sessions.SessionDetail),
    Route("DELETE", "/subscribers/{id}", ADMIN, data=Message),
    Route(
        "POST",
        "/subscribers/disconnect-by-interface",
        ADMIN,
        data=records.InterfaceDisconnected,
        body={"interface": "lo"},
    ),
    Route("PUT", "/subscribers/{id}/rate", ADMIN, data=records.RateChanged, body=_RATES),
    Route("POST", "/subscribers/rate", ADMIN, data=jobs.Job, body={**_RATES, "filter": _NOBODY}, status=202),
    Route("POST", "/subscribers/disconnect", ADMIN, data=jobs.Job, body={"filter": _NOBODY}, status=202),
    _list("/subscribers/jobs", jobs.ListJobs),
    Route("GET", "/subscribers/jobs/{job}", ANY_ROLE, data=jobs.Job),
    Route("DELETE", "/subscribers/jobs/{job}", ADMIN, data=jobs.Job),
    Route("GET", "/subscribers/traffic", ANY_ROLE, data=traffic.TalkersReply),
    # It ends with its session and is not JSON: see test_traffic.
    Route("GET", "/subscribers/{id}/traffic", ANY_ROLE, streams=True),
    Route("GET", "/system/version", ALWAYS, data=records.Version),
    Route("GET", "/system/health", ALWAYS, data=sessions.Health),
    Route("GET", "/health", ALWAYS, data=sessions.Health),
    Route("GET", "/system/health/detail", ANY_ROLE, data=records.HealthDetail),
    _list("/system/faults", health.ListFaults),
    Route("GET", "/system/config", ANY_ROLE, data=records.Configuration),
    # In this order each works after the former ones.
    Route("POST", "/system/config/set", ADMIN, nothing=True, body=_HOSTNAME, free=("value",)),
    Route(
        "POST",
        "/system/config/edit",
        ADMIN,
        data=records.Edited,
        body={"operations": [{"op": "set", **_RATE}]},
    ),
    Route("POST", "/system/config/commit", ADMIN, data=records.Committed, may_have={"confirm_seconds": 600}),
    Route("POST", "/system/config/confirm", ADMIN, data=Message),
    Route("POST", "/system/config/rollback", ADMIN, data=records.RolledBack, body={"revision": 1}),
    Route("GET", "/system/config/candidate", ADMIN, data=records.Candidate),
    Route("GET", "/system/config/compare", ADMIN, data=records.Difference),
    Route("POST", "/system/config/delete", ADMIN, nothing=True, body={"path": "qos.default_down"}),
    Route(
        "PUT",
        "/system/config/candidate",
        ADMIN,
        nothing=True,
        body={"system": {"hostname": "bng3"}},
        partial=True,
    ),
    Route("POST", "/system/config/discard", ADMIN, nothing=True),
    Route("GET", "/system/config/archive", ANY_ROLE, data=make_list_record(configuration.ListArchive)),
    Route("GET", "/system/config/archive/{revision}", ANY_ROLE, data=records.ArchivedConfiguration),
    _list("/interfaces", network.ListInterfaces),
    _list("/interfaces/vlans", network.ListVlans),
    Route("GET", "/interfaces/traffic", ANY_ROLE, data=records.TrafficSampleList),
    _list("/qos", network.ListQos),
    Route("GET", "/qos/profiles", ANY_ROLE, data=make_list_record(network.ListOverheadProfiles)),
    Route("GET", "/routing/bgp/summary", ANY_ROLE, data=records.FrrSummary),
    _list("/routing/routes", network.ListRoutes),
    _list("/cgnat/sessions", network.ListCgnatSessions),
    Route("GET", "/cgnat/stats", ANY_ROLE, data=records.CgnatStats),
    Route("GET", "/demux/config", ANY_ROLE, data=records.DemuxConfiguration),
    _list("/demux/state", network.GetDemuxState),
    # It has no end and is not JSON: see test_events.
    Route("GET", "/events/subscribers", ANY_ROLE, streams=True),
    Route("POST", "/webhooks", ADMIN, data=hub.Webhook, body=_RECEIVER, status=201),
    Route("GET", "/webhooks", ANY_ROLE, data=make_list_record(hub.ListWebhooks)),
    Route("GET", "/webhooks/{webhook}", ANY_ROLE, data=hub.Webhook),
    Route("GET", "/webhooks/{webhook}/deliveries", ANY_ROLE, data=make_list_record(hub.ListDeliveries)),
    Route("POST", "/webhooks/{webhook}/test", ADMIN, data=records.TestSent),
    Route("DELETE", "/webhooks/{webhook}", ADMIN, data=Message),
    Route("GET", "/audit", ADMIN, data=records.AuditRecordList),
    Route("GET", "/metrics", ALWAYS),
    Route("GET", "/openapi.json", OPEN, bare=records.OpenApi),
    Route("GET", "/docs", OPEN),
    # The files of the reference page.
    Route("GET", "/docs/{digest}/{name}", OPEN, part_of_a_page=True),
)

#: The live page, the documentation and their parts: not below `/api/v1` and not JSON, see the tests of pages.
PAGES = ("/", "/page/{name}", "/docs/", "/docs/{name}")
