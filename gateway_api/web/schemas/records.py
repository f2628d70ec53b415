"""Records as they go. They travel unparsed from the core: these say what they are, and the tests hold
every answer against them."""

from typing import Any

from marshmallow import validate
from marshmallow.fields import Dict, Field, List, Nested

from gateway_api.validation import Flag, Schema, Text, Whole


class Record(Schema):
    """A record has all of its fields, always; what may be null says so."""

    def on_bind_field(self, field_name: str, field_obj: Field[Any]) -> None:
        field_obj.required = True


_ADDRESS = validate.Regexp(r"\d{1,3}(\.\d{1,3}){3}\Z")
_MAC = validate.Regexp(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")
_CIDR = validate.Regexp(r"\d{1,3}(\.\d{1,3}){3}/\d{1,2}\Z")
_SESSION_TYPE = validate.OneOf(("PPPoE", "DHCP"))
_STATE = validate.OneOf(("active",))
_COUNT = validate.Range(min=0)
_SPEED = validate.Regexp(r"\d+(\.\d*[1-9])? [kMG]?bit/s\Z")
_UPTIME = validate.Regexp(r"([1-9]\d*d )?[012]\d:[0-5]\d:[0-5]\d\Z")
_UP_OR_DOWN = validate.OneOf(("up", "down"))


class SessionSummary(Record):
    id = Whole()
    type = Text(validate=_SESSION_TYPE)
    username = Text()
    ip_address = Text(validate=_ADDRESS)
    interface = Text()
    rate_down = Whole(validate=_COUNT)
    rate_up = Whole(validate=_COUNT)
    state = Text(validate=_STATE)
    started_at = Whole(validate=_COUNT)


class SessionDetail(Record):
    id = Whole()
    session_type = Text(validate=_SESSION_TYPE)
    state = Text(validate=_STATE)
    username = Text()
    mac_address = Text(validate=_MAC)
    ip_address = Text(validate=_ADDRESS)
    gateway = Text(validate=_ADDRESS, allow_none=True)
    access_interface = Text()
    ppp_interface = Text()
    rate_down_bps = Whole(validate=_COUNT)
    rate_up_bps = Whole(validate=_COUNT)
    overhead_profile = Text()
    vrf_steered = Flag()
    acct_session_id = Text()
    started_at = Whole(validate=_COUNT)
    bytes_in = Whole(validate=_COUNT)
    bytes_out = Whole(validate=_COUNT)
    packets_in = Whole(validate=_COUNT)
    packets_out = Whole(validate=_COUNT)


class Subscriber(Record):
    """An item of the alternative profile's list."""

    id = Whole()
    username = Text()
    ip_address = Text(validate=_ADDRESS)
    interface = Text()
    speed_down = Text(validate=_SPEED)
    speed_up = Text(validate=_SPEED)
    uptime = Text(validate=_UPTIME)


class SubscriberDetail(SessionDetail):
    """Of the alternative profile."""

    speed_down = Text(validate=_SPEED)
    speed_up = Text(validate=_SPEED)
    uptime = Text(validate=_UPTIME)


class SessionCounts(Record):
    total = Whole(validate=_COUNT)
    pppoe = Whole(validate=_COUNT)
    dhcp = Whole(validate=_COUNT)


class Message(Record):
    message = Text()


class InterfaceDisconnected(Message):
    count = Whole(validate=_COUNT)


class InterfaceDisconnectPreview(InterfaceDisconnected):
    sessions = List(Nested(SessionSummary))


class RateChanged(Message):
    rate_down = Text()
    rate_up = Text()
    rate_down_bps = Whole()
    rate_up_bps = Whole()


class Token(Record):
    access_token = Text()
    token_type = Text(validate=validate.Equal("bearer"))


class Version(Record):
    product = Text()
    version = Text()
    component = Text()


class Health(Record):
    uptime_seconds = Whole(validate=_COUNT)
    active_sessions = Whole(validate=_COUNT)
    product = Text()
    version = Text()


class Status(Health):
    """Of the alternative profile."""

    uptime = Text(validate=_UPTIME)
    core_reachable = Flag()


class InterfaceAddress(Record):
    family = Text(validate=validate.OneOf(("inet", "inet6")))
    address = Text()
    prefix_length = Whole(validate=validate.Range(0, 128))


class InterfaceStats(Record):
    rx_bytes = Whole(validate=_COUNT)
    rx_packets = Whole(validate=_COUNT)
    rx_errors = Whole(validate=_COUNT)
    rx_dropped = Whole(validate=_COUNT)
    tx_bytes = Whole(validate=_COUNT)
    tx_packets = Whole(validate=_COUNT)
    tx_errors = Whole(validate=_COUNT)
    tx_dropped = Whole(validate=_COUNT)


class Interface(Record):
    ifindex = Whole()
    name = Text()
    type = Text(validate=validate.OneOf(("trunk", "loopback", "vlan", "ppp", "ifb", "vrf", "other")))
    mac_address = Text(validate=_MAC, allow_none=True)
    mtu = Whole()
    admin_state = Text(validate=_UP_OR_DOWN)
    oper_state = Text()
    parent = Text(allow_none=True)
    master = Text(allow_none=True)
    addresses = List(Nested(InterfaceAddress))
    stats = Nested(InterfaceStats)


class Vlan(Record):
    name = Text()
    trunk = Text()
    vlan_id = Whole(validate=validate.Range(1, 4094))
    outer_vlan_id = Whole(validate=validate.Range(1, 4094), allow_none=True)
    protocol = Text(validate=validate.OneOf(("802.1Q", "802.1ad")))
    oper_state = Text()
    session_count = Whole(validate=_COUNT)
    created_at = Whole(validate=_COUNT)


class DemuxVlan(Vlan):
    state = Text(validate=validate.OneOf(("active", "idle")))


class SessionQos(Record):
    session_id = Whole()
    username = Text()
    interface = Text()
    ifb_device = Text(allow_none=True)
    rate_down_bps = Whole(validate=_COUNT)
    rate_up_bps = Whole(validate=_COUNT)
    overhead_profile = Text()
    overhead = Whole(validate=_COUNT)
    mpu = Whole(validate=_COUNT)
    qdisc = Text()


class OverheadProfile(Record):
    name = Text()
    overhead = Whole(validate=_COUNT)
    mpu = Whole(validate=_COUNT)
    description = Text()


class Route(Record):
    dst = Text(validate=_CIDR)
    gateway = Text(validate=_ADDRESS, allow_none=True)
    dev = Text()
    protocol = Text()
    scope = Text()
    type = Text()
    table = Text()
    metric = Whole(allow_none=True)
    prefsrc = Text(validate=_ADDRESS, allow_none=True)
    session_id = Whole(allow_none=True)


class CgnatSession(Record):
    id = Whole()
    type = Text(validate=_SESSION_TYPE)
    username = Text()
    ip_address = Text(validate=_ADDRESS)
    interface = Text()
    vrf_name = Text()
    vrf_table = Whole()
    handoff_interface = Text()
    handoff_gateway = Text(validate=_ADDRESS)
    started_at = Whole(validate=_COUNT)


class CgnatStats(Record):
    vrf_steered_sessions = Whole(validate=_COUNT)
    public_ip_sessions = Whole(validate=_COUNT)
    total_sessions = Whole(validate=_COUNT)


class FrrSummary(Record):
    """FRR's own document, an object for each address family."""

    ipv4Unicast = Dict(keys=Text())


class _List(Record):
    count = Whole(validate=_COUNT)


class _Page(_List):
    total = Whole(validate=_COUNT)
    next_cursor = Text(allow_none=True)


def list_of(name: str, record: type[Record], *, paged: bool = False, **more: Field[Any]) -> type[Schema]:
    """The schema of a list's data: the records under a name, and their count."""
    fields: dict[str, Any] = {name: List(Nested(record)), **more}
    base = _Page if paged else _List
    return type(f"{record.__name__}{base.__name__}", (base,), fields)
