"""The state of the network: interfaces, QoS, routing, CGNAT and demux."""

from typing import Any

from flask import Blueprint, Response

from gateway_api.history.traffic import TrafficSpan
from gateway_api.web import access, lists, parse, responses
from gateway_api.web.configuration_sections import DemuxConfiguration
from gateway_api.web.history_records import TrafficSampleList
from gateway_api.web.records import CgnatStats, FrrSummary, listing
from gateway_api.web.schemas.history import NetworkTrafficQuery
from gateway_api.web.schemas.queries import list_query
from gateway_api.web.services import daemon, history
from gateway_api.wire.core import network as wire
from gateway_api.wire.core.configuration import GetConfiguration
from gateway_api.wire.core.sessions import GetStatistics

interfaces = Blueprint("interfaces", __name__, url_prefix="/api/v1/interfaces")
qos = Blueprint("qos", __name__, url_prefix="/api/v1/qos")
routing = Blueprint("routing", __name__, url_prefix="/api/v1/routing")
cgnat = Blueprint("cgnat", __name__, url_prefix="/api/v1/cgnat")
demux = Blueprint("demux", __name__, url_prefix="/api/v1/demux")


@interfaces.get("", endpoint="index")
@access.any_role
@access.together
@responses.data(listing(wire.ListInterfaces))
@lists.query(list_query(wire.ListInterfaces))
def all_interfaces(query: dict[str, Any]) -> Response:
    """All interfaces: trunk, loopback, VLAN, ppp, IFB and VRF."""
    return responses.listed(daemon().listed(wire.ListInterfaces(**query)))


@interfaces.get("/traffic")
@access.any_role
@responses.data(TrafficSampleList)
@parse.query(NetworkTrafficQuery)
def traffic(query: dict[str, Any]) -> Response:
    """The traffic of all trunks over time: the mean of each step, the oldest first."""
    found = history().traffic(TrafficSpan(**query))
    return responses.ok(found._asdict() | {"count": len(found.samples)})


@interfaces.get("/vlans")
@access.any_role
@access.together
@responses.data(listing(wire.ListVlans))
@lists.query(list_query(wire.ListVlans))
def vlans(query: dict[str, Any]) -> Response:
    """The VLAN sub-interfaces that the demux component created."""
    return responses.listed(daemon().listed(wire.ListVlans(**query)))


@qos.get("", endpoint="index")
@access.any_role
@access.together
@responses.data(listing(wire.ListQos))
@lists.query(list_query(wire.ListQos))
def shaping(query: dict[str, Any]) -> Response:
    """The shaping of each session."""
    return responses.listed(daemon().listed(wire.ListQos(**query)))


@qos.get("/profiles")
@access.any_role
@access.together
@responses.data(listing(wire.ListOverheadProfiles))
def profiles() -> Response:
    """The overhead profiles that sessions may have."""
    return responses.ok(daemon().fields(wire.ListOverheadProfiles()))


@routing.get("/bgp/summary")
@access.any_role
@access.together
@responses.data(FrrSummary)
def bgp_summary() -> Response:
    """The routing daemon's own summary of its BGP neighbours; `{}` without BGP."""
    return responses.ok(daemon().fields(wire.GetBgpSummary(), "summary")["summary"])


@routing.get("/routes")
@access.any_role
@access.together
@responses.data(listing(wire.ListRoutes))
@lists.query(list_query(wire.ListRoutes))
def kernel_routes(query: dict[str, Any]) -> Response:
    """The kernel's routes, those to subscribers included."""
    return responses.listed(daemon().listed(wire.ListRoutes(**query)))


@cgnat.get("/sessions")
@access.any_role
@access.together
@responses.data(listing(wire.ListCgnatSessions))
@lists.query(list_query(wire.ListCgnatSessions))
def sessions(query: dict[str, Any]) -> Response:
    """The sessions that go through the CGNAT VRF."""
    return responses.listed(daemon().listed(wire.ListCgnatSessions(**query)))


@cgnat.get("/stats")
@access.any_role
@access.together
@responses.data(CgnatStats)
def stats() -> Response:
    """The number of sessions that are steered, and of those with a public address."""
    counts = daemon().reply(GetStatistics())
    return responses.ok(
        CgnatStats(counts.vrf_steered_sessions, counts.public_ip_sessions, counts.active_sessions)
    )


@demux.get("/config")
@access.any_role
@access.together
@responses.data(DemuxConfiguration)
def demux_configuration() -> Response:
    """The demux section of the running configuration."""
    sections, _ = daemon().sections(GetConfiguration())
    return responses.ok(sections.get("demux", {}))


@demux.get("/state")
@access.any_role
@access.together
@responses.data(listing(wire.GetDemuxState))
@lists.query(list_query(wire.GetDemuxState))
def state(query: dict[str, Any]) -> Response:
    """The VLANs that demux manages, and the number that its limits have rejected."""
    return responses.listed(daemon().listed(wire.GetDemuxState(**query)))
