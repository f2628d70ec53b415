"""The state of the network: interfaces, QoS, routing, CGNAT and demux."""

from typing import Any

import msgspec

from gateway_api.core_client.calls import Fields
from gateway_api.core_client.commands import Sections
from gateway_api.history.traffic import TrafficSpan
from gateway_api.web.lists import listed
from gateway_api.web.operation import ANY_ROLE, GET, Passed, Routes
from gateway_api.web.records import CgnatStats, DemuxConfiguration, FrrSummary, TrafficSampleList, listing
from gateway_api.web.schemas.queries import NetworkTrafficQuery
from gateway_api.web.services import history
from gateway_api.wire.configuration import Demux
from gateway_api.wire.core import network as wire
from gateway_api.wire.core.configuration import GetConfiguration
from gateway_api.wire.core.sessions import GetStatistics, Statistics


def traffic(query: dict[str, Any]) -> TrafficSampleList:
    """The traffic of all trunks over time: the mean of each step, the oldest first."""
    found = history().traffic(TrafficSpan(**query))
    samples = tuple(found.samples)
    return TrafficSampleList(samples=samples, step_seconds=found.step_seconds, count=len(samples))


def profiles(reply: Fields) -> Passed[wire.OverheadProfilesReply]:
    """The overhead profiles that sessions may have."""
    return Passed(reply)


def bgp_summary(reply: Fields) -> Passed[FrrSummary]:
    """The routing daemon's own summary of its BGP neighbours; `{}` without BGP."""
    return Passed(reply["summary"])


def stats(counts: Statistics) -> CgnatStats:
    """The number of sessions that are steered, and of those with a public address."""
    return CgnatStats(counts.vrf_steered_sessions, counts.public_ip_sessions, counts.active_sessions)


def demux_configuration(running: tuple[Sections, str]) -> Passed[Demux]:
    """The demux section of the running configuration."""
    return Passed(running[0].get("demux", msgspec.Raw(b"{}")))


VLANS = listed(
    "/vlans", wire.ListVlans, "The VLAN sub-interfaces that the demux component created.", name="vlans"
)

interfaces = Routes(
    "interfaces",
    "/api/v1/interfaces",
    listed("", wire.ListInterfaces, "All interfaces: trunk, loopback, VLAN, ppp, IFB and VRF."),
    GET("/traffic", traffic, ANY_ROLE, query=NetworkTrafficQuery, compressed=True),
    VLANS,
)
qos = Routes(
    "qos",
    "/api/v1/qos",
    listed("", wire.ListQos, "The shaping of each session."),
    GET(
        "/profiles",
        profiles,
        ANY_ROLE,
        read=lambda core: core.fields(wire.ListOverheadProfiles()),
        data=(listing(wire.ListOverheadProfiles),),
    ),
)
routing = Routes(
    "routing",
    "/api/v1/routing",
    GET(
        "/bgp/summary",
        bgp_summary,
        ANY_ROLE,
        read=lambda core: core.fields(wire.GetBgpSummary(), "summary"),
        compressed=True,
    ),
    listed(
        "/routes",
        wire.ListRoutes,
        "The kernel's routes, those to subscribers included.",
        name="kernel_routes",
    ),
)
cgnat = Routes(
    "cgnat",
    "/api/v1/cgnat",
    listed(
        "/sessions", wire.ListCgnatSessions, "The sessions that go through the CGNAT VRF.", name="sessions"
    ),
    GET("/stats", stats, ANY_ROLE, read=lambda core: core.reply(GetStatistics())),
)
demux = Routes(
    "demux",
    "/api/v1/demux",
    GET(
        "/config",
        demux_configuration,
        ANY_ROLE,
        read=lambda core: core.sections(GetConfiguration()),
        data=(DemuxConfiguration,),
    ),
    listed(
        "/state",
        wire.GetDemuxState,
        "The VLANs that demux manages, and the number that its limits have rejected.",
        name="state",
    ),
)
