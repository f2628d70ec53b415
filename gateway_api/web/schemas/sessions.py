"""Records of sessions, as they go."""

from marshmallow import validate
from marshmallow.fields import List, Nested

from gateway_api.base.fields import Flag, Text, Whole
from gateway_api.web.schemas.describe import says
from gateway_api.web.schemas.records import ADDRESS, COUNT, MAC, SESSION_TYPE, Message, Record

_STATE = validate.OneOf(("active",))

_ID = says("Session id.", 7)
_TYPE = says("Session type.", "PPPoE")
_USERNAME = says("Subscriber login.", "subscriber000006@lab.example")
_ASSIGNED = says("Assigned address.", "100.64.0.5", format="ipv4")
_INTERFACE = says("Interface of the session.", "ppp5")
_MAC = says("MAC address of the subscriber.", "02:00:00:00:00:06")
_ACCESS = says("Interface that the session arrived on.", "trunk0.1001")
_STATE_SAYS = says("Session state.", "active")
_STARTED = says("Start time, Unix epoch seconds.", 1795271513)
_DOWN = says("Downstream rate, bits per second.", 100_000_000)
_UP = says("Upstream rate, bits per second.", 20_000_000)
_PROFILE = says("Name of the overhead profile.", "pppoe_ethernet")


class SessionSummary(Record):
    id = Whole(metadata=_ID)
    type = Text(validate=SESSION_TYPE, metadata=_TYPE)
    username = Text(metadata=_USERNAME)
    ip_address = Text(validate=ADDRESS, metadata=_ASSIGNED)
    interface = Text(metadata=_INTERFACE)
    rate_down = Whole(validate=COUNT, metadata=_DOWN)
    rate_up = Whole(validate=COUNT, metadata=_UP)
    state = Text(validate=_STATE, metadata=_STATE_SAYS)
    started_at = Whole(validate=COUNT, metadata=_STARTED)
    mac_address = Text(validate=MAC, metadata=_MAC)
    access_interface = Text(metadata=_ACCESS)


class SessionDetail(Record):
    id = Whole(metadata=_ID)
    session_type = Text(validate=SESSION_TYPE, metadata=_TYPE)
    state = Text(validate=_STATE, metadata=_STATE_SAYS)
    username = Text(metadata=_USERNAME)
    mac_address = Text(validate=MAC, metadata=_MAC)
    ip_address = Text(validate=ADDRESS, metadata=_ASSIGNED)
    gateway = Text(
        validate=ADDRESS,
        allow_none=True,
        metadata=says("Gateway address, null when there is none.", "100.64.0.1", format="ipv4"),
    )
    access_interface = Text(metadata=_ACCESS)
    ppp_interface = Text(metadata=says("PPP interface, empty for DHCP.", "ppp5"))
    rate_down_bps = Whole(validate=COUNT, metadata=_DOWN)
    rate_up_bps = Whole(validate=COUNT, metadata=_UP)
    overhead_profile = Text(metadata=_PROFILE)
    vrf_steered = Flag(metadata=says("Whether it is steered through the CGNAT VRF.", True))
    acct_session_id = Text(metadata=says("Accounting session id.", "ed2f89d94a2f20aa"))
    started_at = Whole(validate=COUNT, metadata=_STARTED)
    bytes_in = Whole(validate=COUNT, metadata=says("Bytes from the subscriber.", 117155058))
    bytes_out = Whole(validate=COUNT, metadata=says("Bytes to the subscriber.", 585775294))
    packets_in = Whole(validate=COUNT, metadata=says("Packets from the subscriber.", 292887))
    packets_out = Whole(validate=COUNT, metadata=says("Packets to the subscriber.", 488146))


class SessionCounts(Record):
    total = Whole(validate=COUNT, metadata=says("All sessions.", 298))
    pppoe = Whole(validate=COUNT, metadata=says("PPPoE sessions.", 271))
    dhcp = Whole(validate=COUNT, metadata=says("DHCP sessions.", 27))


class InterfaceDisconnected(Message):
    message = Text(metadata=says("What was done, for people.", "27 sessions disconnected on trunk0.1000"))
    count = Whole(validate=COUNT, metadata=says("How many sessions.", 27))


class InterfaceDisconnectPreview(InterfaceDisconnected):
    sessions = List(Nested(SessionSummary), metadata={"description": "Those that would go."})


class RateChanged(Message):
    message = Text(metadata=says("What was done, for people.", "Rate change requested for session 7"))
    rate_down = Text(metadata=says("Downstream rate, as it was sent.", "250 Mbit"))
    rate_up = Text(metadata=says("Upstream rate, as it was sent.", "50mbps"))
    rate_down_bps = Whole(metadata=says("Downstream rate, bits per second.", 250_000_000))
    rate_up_bps = Whole(metadata=says("Upstream rate, bits per second.", 50_000_000))


class SessionQos(Record):
    session_id = Whole(metadata=_ID)
    username = Text(metadata=_USERNAME)
    interface = Text(metadata=says("Shaped interface.", "ppp5"))
    ifb_device = Text(
        allow_none=True, metadata=says("IFB device that shapes upstream, null when none does.", "ifb-ppp5")
    )
    rate_down_bps = Whole(validate=COUNT, metadata=_DOWN)
    rate_up_bps = Whole(validate=COUNT, metadata=_UP)
    overhead_profile = Text(metadata=_PROFILE)
    overhead = Whole(validate=COUNT, metadata=says("Bytes added to each packet.", 50))
    mpu = Whole(validate=COUNT, metadata=says("Least bytes counted for a packet.", 84))
    qdisc = Text(metadata=says("Queueing discipline.", "htb"))


class OverheadProfile(Record):
    name = Text(metadata=_PROFILE)
    overhead = Whole(validate=COUNT, metadata=says("Bytes added to each packet.", 50))
    mpu = Whole(validate=COUNT, metadata=says("Least bytes counted for a packet.", 84))
    description = Text(metadata=says("What it is for.", "PPPoE over Ethernet with one VLAN tag"))


class CgnatSession(Record):
    id = Whole(metadata=_ID)
    type = Text(validate=SESSION_TYPE, metadata=_TYPE)
    username = Text(metadata=_USERNAME)
    ip_address = Text(validate=ADDRESS, metadata=_ASSIGNED)
    interface = Text(metadata=_INTERFACE)
    vrf_name = Text(metadata=says("VRF that it goes through.", "cgnat"))
    vrf_table = Whole(metadata=says("Routing table of the VRF.", 100))
    handoff_interface = Text(metadata=says("Interface towards the CGNAT appliance.", "cgnat0"))
    handoff_gateway = Text(
        validate=ADDRESS, metadata=says("Address of the CGNAT appliance.", "10.255.1.2", format="ipv4")
    )
    started_at = Whole(validate=COUNT, metadata=_STARTED)


class CgnatStats(Record):
    vrf_steered_sessions = Whole(validate=COUNT, metadata=says("Sessions through the CGNAT VRF.", 219))
    public_ip_sessions = Whole(validate=COUNT, metadata=says("Sessions with an address of their own.", 79))
    total_sessions = Whole(validate=COUNT, metadata=says("All sessions.", 298))
