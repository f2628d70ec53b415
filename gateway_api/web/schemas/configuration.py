"""Records of the configuration and its workflow, as they go."""

from marshmallow import validate
from marshmallow.fields import Dict, List, Nested

from gateway_api.base.fields import Flag, Text, Whole
from gateway_api.web.schemas.describe import says
from gateway_api.web.schemas.records import COUNT, Answer, Record

_AUTHOR = says("Who committed it.", "admin")
_COMMENT = says("What was said of it, null when nothing was.", "faster for everybody")
_CONFIRM_DEADLINE = says(
    "When the last commit is undone unless confirmed, Unix epoch seconds; null for never.", None
)
_COMMITTED_AT = says("When, Unix epoch seconds.", 1795271513)
_REVISION = says("Number in the archive, 1 being the newest.", 1)

_SYSTEM = says("What the gateway is called.", {"hostname": "bng1"})
_INTERFACES = says(
    "Interfaces: `trunks` carry subscribers, `uplinks` the rest of the network.",
    {"trunks": ["trunk0", "trunk1"], "uplinks": ["uplink0", "cgnat0"]},
)
_RADIUS = says("The RADIUS server; its secret is masked.", {"server": None, "secret": "********"})
_CGNAT = says(
    "Steering to the CGNAT appliance.",
    {
        "enabled": True,
        "vrf_name": "cgnat",
        "vrf_table": 100,
        "handoff_interface": "cgnat0",
        "handoff_gateway": "10.255.1.2",
        "source_range": "100.64.0.0/10",
    },
)
_QOS = says(
    "Rates of sessions for which nobody says otherwise, as text with a unit.",
    {"default_down": "100mbit", "default_up": "20mbit"},
)
_DEMUX = says("VLANs that are made for subscribers.", {"trunks": ["trunk0"], "idle_timeout": 300})
_API = says(
    "This API: its users, whose hashes are masked, and how long tokens hold, seconds.",
    {
        "enabled": True,
        "token_lifetime": 3600,
        "users": [{"username": "admin", "password_hash": "********", "role": "admin"}],
    },
)
_BGP = says(
    "The gateway's own AS and its neighbours; null or missing without BGP.",
    {
        "as_number": 64512,
        "router_id": "10.255.0.1",
        "neighbors": [{"address": "10.255.0.2", "remote_as": 64513, "description": "core1"}],
    },
)
_SUBSCRIBERS = says("Subscribers for when no RADIUS server is asked.", {"local": []})


class VlanProfile(Record):
    name = Text(metadata=says("Name of the profile.", "ipoe"))
    type = Text(validate=validate.OneOf(("pppoe", "dhcp")), metadata=says("Type of its sessions.", "dhcp"))
    vlan_range = Text(metadata=says("VLAN ids, the inner ones of two.", "100-999"))
    outer_vlan_range = Text(allow_none=True, metadata=says("Outer VLAN ids, null without QinQ.", "100-999"))
    overhead_profile = Text(metadata=says("Name of the overhead profile.", "ipoe_qinq"))


class RateLimits(Record):
    vlans_per_second = Whole(metadata=says("New VLANs a second.", 200))
    burst = Whole(metadata=says("New VLANs at once.", 1000))
    max_vlans = Whole(metadata=says("VLANs in all.", 16384))


class DemuxConfiguration(Record):
    trunks = List(Text(), metadata=says("Interfaces on which VLANs are made.", ["trunk0", "trunk1"]))
    vlan_profiles = List(Nested(VlanProfile), metadata={"description": "What becomes of which VLANs."})
    rate_limits = Nested(RateLimits)
    idle_timeout = Whole(metadata=says("Seconds that a VLAN without sessions stays.", 300))


class Configuration(Answer):
    """One object a section; what is in them is the core's to say. Some may be left out."""

    system = Dict(keys=Text(), required=True, metadata=_SYSTEM)
    interfaces = Dict(keys=Text(), required=True, metadata=_INTERFACES)
    radius = Dict(keys=Text(), required=True, metadata=_RADIUS)
    cgnat = Dict(keys=Text(), required=True, metadata=_CGNAT)
    qos = Dict(keys=Text(), required=True, metadata=_QOS)
    demux = Nested(DemuxConfiguration, required=True)
    api = Dict(keys=Text(), required=True, metadata=_API)
    bgp = Dict(keys=Text(), allow_none=True, metadata=_BGP)
    subscribers = Dict(keys=Text(), metadata=_SUBSCRIBERS)


class Candidate(Answer):
    """As the running configuration, but anything may still be missing."""

    system = Dict(keys=Text(), metadata=_SYSTEM)
    interfaces = Dict(keys=Text(), metadata=_INTERFACES)
    radius = Dict(keys=Text(), metadata=_RADIUS)
    cgnat = Dict(keys=Text(), metadata=_CGNAT)
    qos = Dict(keys=Text(), metadata=_QOS)
    demux = Dict(keys=Text(), metadata=_DEMUX)
    api = Dict(keys=Text(), metadata=_API)
    bgp = Dict(keys=Text(), allow_none=True, metadata=_BGP)
    subscribers = Dict(keys=Text(), metadata=_SUBSCRIBERS)


class Difference(Record):
    diff = Text(
        metadata=says(
            "Lines that begin with - for what was and + for what will be.",
            '- qos.default_down = "100mbit"\n+ qos.default_down = "200mbit"\n',
        )
    )
    confirm_deadline = Whole(allow_none=True, metadata=_CONFIRM_DEADLINE)


class Committed(Record):
    message = Text(metadata=says("What was done, for people.", "Committed 1 change"))
    committed = Flag(metadata=says("False when there was nothing to commit.", True))
    changes = Whole(validate=COUNT, metadata=says("How many values changed.", 1))
    archived_revision = Whole(
        allow_none=True, metadata=says("Where what ran before is now in the archive; null without.", 1)
    )
    author = Text(metadata=_AUTHOR)
    comment = Text(allow_none=True, metadata=_COMMENT)
    committed_at = Whole(validate=COUNT, metadata=_COMMITTED_AT)
    confirm_deadline = Whole(allow_none=True, metadata=_CONFIRM_DEADLINE)


class RolledBack(Record):
    message = Text(
        metadata=says("What was done, for people.", "Revision 1 is the candidate; commit to make it run")
    )
    revision = Whole(validate=validate.Range(1), metadata=_REVISION)
    changes = Whole(validate=COUNT, metadata=says("How many values a commit would change.", 1))


class ArchivedCommit(Record):
    revision = Whole(validate=validate.Range(1), metadata=_REVISION)
    committed_at = Whole(validate=COUNT, metadata=_COMMITTED_AT)
    author = Text(metadata=_AUTHOR)
    comment = Text(allow_none=True, metadata=_COMMENT)


class ArchivedRevision(ArchivedCommit):
    configuration = Nested(Configuration)
