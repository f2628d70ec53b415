"""Records of the configuration and its workflow, as they go."""

from marshmallow import validate
from marshmallow.fields import Dict, List, Nested

from gateway_api.validation import Flag, Schema, Text, Whole
from gateway_api.web.schemas.records import Record

_COUNT = validate.Range(min=0)


class VlanProfile(Record):
    name = Text()
    type = Text(validate=validate.OneOf(("pppoe", "dhcp")))
    vlan_range = Text()
    outer_vlan_range = Text(allow_none=True)
    overhead_profile = Text()


class RateLimits(Record):
    vlans_per_second = Whole()
    burst = Whole()
    max_vlans = Whole()


class DemuxConfiguration(Record):
    trunks = List(Text())
    vlan_profiles = List(Nested(VlanProfile))
    rate_limits = Nested(RateLimits)
    idle_timeout = Whole()


class Configuration(Schema):
    """One object a section; what is in them is the core's to say. Some may be left out."""

    system = Dict(keys=Text(), required=True)
    interfaces = Dict(keys=Text(), required=True)
    radius = Dict(keys=Text(), required=True)
    cgnat = Dict(keys=Text(), required=True)
    qos = Dict(keys=Text(), required=True)
    demux = Nested(DemuxConfiguration, required=True)
    api = Dict(keys=Text(), required=True)
    bgp = Dict(keys=Text(), allow_none=True)
    subscribers = Dict(keys=Text())


class Candidate(Schema):
    """As the running configuration, but anything may still be missing."""

    system = Dict(keys=Text())
    interfaces = Dict(keys=Text())
    radius = Dict(keys=Text())
    cgnat = Dict(keys=Text())
    qos = Dict(keys=Text())
    demux = Dict(keys=Text())
    api = Dict(keys=Text())
    bgp = Dict(keys=Text(), allow_none=True)
    subscribers = Dict(keys=Text())


class Difference(Record):
    diff = Text()


class Committed(Record):
    message = Text()
    committed = Flag()
    changes = Whole(validate=_COUNT)
    archived_revision = Whole(allow_none=True)
    author = Text()
    comment = Text(allow_none=True)
    committed_at = Whole(validate=_COUNT)
    confirm_deadline = Whole(allow_none=True)


class RolledBack(Record):
    message = Text()
    revision = Whole(validate=validate.Range(1))
    changes = Whole(validate=_COUNT)


class ArchivedCommit(Record):
    revision = Whole(validate=validate.Range(1))
    committed_at = Whole(validate=_COUNT)
    author = Text()
    comment = Text(allow_none=True)


class ArchivedRevision(ArchivedCommit):
    configuration = Nested(Configuration)
