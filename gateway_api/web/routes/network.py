"""Views of the state of the network: interfaces, QoS, routing, CGNAT and demux."""

import msgspec
from flask import Blueprint

from gateway_api.history.traffic import TrafficSpan, read_traffic
from gateway_api.web import records
from gateway_api.web.access import ANY_ROLE
from gateway_api.web.operation import RawJson, list_operation, operation
from gateway_api.web.schemas import queries
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
def list_interfaces(query: queries.ListSelection) -> ListParts:
    """List all interfaces: trunk, loopback, VLAN, ppp, IFB and VRF."""
    return core().call_list(query.make_call(wire.ListInterfaces))


@interfaces.get("/traffic", endpoint="traffic")
@operation(ANY_ROLE, query=queries.NetworkTrafficQuery, is_compressible=True)
def list_traffic(query: TrafficSpan) -> records.TrafficSampleList:
    """List the traffic of all trunks over time: the mean of each step, oldest first."""
    result = history().search(read_traffic, query)
    samples = tuple(result.samples)
    return records.TrafficSampleList(samples=samples, step_seconds=result.step_seconds, count=len(samples))


@interfaces.get("/vlans", endpoint="vlans")
@list_operation(wire.ListVlans)
def list_vlans(query: queries.ListSelection) -> ListParts:
    """List the VLAN sub-interfaces that the demux component created."""
    return core().call_list(query.make_call(wire.ListVlans))


@qos.get("", endpoint="index")
@list_operation(wire.ListQos)
def list_qos(query: queries.ListSelection) -> ListParts:
    """List the shaping of each session."""
    return core().call_list(query.make_call(wire.ListQos))


@qos.get("/profiles", endpoint="profiles")
@operation(ANY_ROLE, data=(records.make_list_record(wire.ListOverheadProfiles),))
def list_profiles() -> RawJson[wire.OverheadProfilesReply]:
    """List the overhead profiles that a session can have."""
    return RawJson(core().call_fields(wire.ListOverheadProfiles()))


@routing.get("/bgp/summary", endpoint="bgp_summary")
@operation(ANY_ROLE, is_compressible=True)
def show_bgp_summary() -> RawJson[records.FrrSummary]:
    """Return the BGP summary of the routing daemon, in the daemon's own format; `{}` without BGP."""
    return RawJson(core().call_fields(wire.GetBgpSummary(), "summary")["summary"])


@routing.get("/routes", endpoint="kernel_routes")
@list_operation(wire.ListRoutes)
def list_routes(query: queries.ListSelection) -> ListParts:
    """List the kernel's routes, including the routes to subscribers."""
    return core().call_list(query.make_call(wire.ListRoutes))


@cgnat.get("/sessions", endpoint="sessions")
@list_operation(wire.ListCgnatSessions)
def list_cgnat_sessions(query: queries.ListSelection) -> ListParts:
    """List the sessions that go through the CGNAT VRF."""
    return core().call_list(query.make_call(wire.ListCgnatSessions))


@cgnat.get("/stats", endpoint="stats")
@operation(ANY_ROLE)
def count_cgnat_sessions() -> records.CgnatStats:
    """Count the sessions that are steered to the CGNAT appliance, and the sessions with a public address."""
    counts = core().call(GetStatistics())
    return records.CgnatStats(counts.vrf_steered_sessions, counts.public_ip_sessions, counts.active_sessions)


@demux.get("/config", endpoint="demux_configuration")
@operation(ANY_ROLE, data=(records.DemuxConfiguration,))
def show_demux_configuration() -> RawJson[Demux]:
    """Return the demux section of the running configuration."""
    running, _ = core().get_sections(GetConfiguration())
    return RawJson(running.get("demux", msgspec.Raw(b"{}")))


@demux.get("/state", endpoint="state")
@list_operation(wire.GetDemuxState)
def show_demux_state(query: queries.ListSelection) -> ListParts:
    """List the VLANs that demux manages, and count the VLANs that its limits have rejected."""
    return core().call_list(query.make_call(wire.GetDemuxState))
