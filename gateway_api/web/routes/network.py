"""The state of the network: interfaces, QoS, routing, CGNAT and demux."""

import msgspec
from flask import Blueprint

from gateway_api.history.traffic import TrafficSpan
from gateway_api.web.access import ANY_ROLE
from gateway_api.web.lists import list_operation
from gateway_api.web.operation import Passed, operation
from gateway_api.web.records import CgnatStats, DemuxConfiguration, FrrSummary, TrafficSampleList, listing
from gateway_api.web.schemas.queries import ListSelection, NetworkTrafficQuery
from gateway_api.web.services import core, history
from gateway_contract.configuration import Demux
from gateway_contract.core import network as wire
from gateway_contract.core.configuration import GetConfiguration
from gateway_contract.core.sessions import GetStatistics
from gateway_contract.core_client import ListParts

interfaces = Blueprint("interfaces", __name__, url_prefix="/api/v1/interfaces")
qos = Blueprint("qos", __name__, url_prefix="/api/v1/qos")
routing = Blueprint("routing", __name__, url_prefix="/api/v1/routing")
cgnat = Blueprint("cgnat", __name__, url_prefix="/api/v1/cgnat")
demux = Blueprint("demux", __name__, url_prefix="/api/v1/demux")


@interfaces.get("", endpoint="index")
@list_operation(wire.ListInterfaces)
def list_interfaces(query: ListSelection) -> ListParts:
    """All interfaces: trunk, loopback, VLAN, ppp, IFB and VRF."""
    return core().call_list(query.call(wire.ListInterfaces))


@interfaces.get("/traffic")
@operation(ANY_ROLE, query=NetworkTrafficQuery, compressed=True)
def traffic(query: TrafficSpan) -> TrafficSampleList:
    """The traffic of all trunks over time: the mean of each step, the oldest first."""
    found = history().traffic(query)
    samples = tuple(found.samples)
    return TrafficSampleList(samples=samples, step_seconds=found.step_seconds, count=len(samples))


@interfaces.get("/vlans")
@list_operation(wire.ListVlans)
def vlans(query: ListSelection) -> ListParts:
    """The VLAN sub-interfaces that the demux component created."""
    return core().call_list(query.call(wire.ListVlans))


@qos.get("", endpoint="index")
@list_operation(wire.ListQos)
def list_qos(query: ListSelection) -> ListParts:
    """The shaping of each session."""
    return core().call_list(query.call(wire.ListQos))


@qos.get("/profiles")
@operation(ANY_ROLE, data=(listing(wire.ListOverheadProfiles),))
def profiles() -> Passed[wire.OverheadProfilesReply]:
    """The overhead profiles that sessions may have."""
    return Passed(core().call_fields(wire.ListOverheadProfiles()))


@routing.get("/bgp/summary")
@operation(ANY_ROLE, compressed=True)
def bgp_summary() -> Passed[FrrSummary]:
    """The routing daemon's own summary of its BGP neighbours; `{}` without BGP."""
    return Passed(core().call_fields(wire.GetBgpSummary(), "summary")["summary"])


@routing.get("/routes")
@list_operation(wire.ListRoutes)
def kernel_routes(query: ListSelection) -> ListParts:
    """The kernel's routes, those to subscribers included."""
    return core().call_list(query.call(wire.ListRoutes))


@cgnat.get("/sessions")
@list_operation(wire.ListCgnatSessions)
def sessions(query: ListSelection) -> ListParts:
    """The sessions that go through the CGNAT VRF."""
    return core().call_list(query.call(wire.ListCgnatSessions))


@cgnat.get("/stats")
@operation(ANY_ROLE)
def stats() -> CgnatStats:
    """The number of sessions that are steered, and of those with a public address."""
    counts = core().call(GetStatistics())
    return CgnatStats(counts.vrf_steered_sessions, counts.public_ip_sessions, counts.active_sessions)


@demux.get("/config")
@operation(ANY_ROLE, data=(DemuxConfiguration,))
def demux_configuration() -> Passed[Demux]:
    """The demux section of the running configuration."""
    running, _ = core().get_sections(GetConfiguration())
    return Passed(running.get("demux", msgspec.Raw(b"{}")))


@demux.get("/state")
@list_operation(wire.GetDemuxState)
def state(query: ListSelection) -> ListParts:
    """The VLANs that demux manages, and the number that its limits have rejected."""
    return core().call_list(query.call(wire.GetDemuxState))
