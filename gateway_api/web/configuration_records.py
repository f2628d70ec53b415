"""The records of responses about the configuration. Those of the core are in `wire/`."""

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType

from gateway_api.web.records import Object, done
from gateway_api.wire.contract import Record, about
from gateway_api.wire.core import configuration, impact


class VlanProfile(Record, frozen=True):
    """The treatment of a range of VLANs."""

    name: Annotated[str, about("Name of the profile.", "ipoe")]
    type: Annotated[Literal["pppoe", "dhcp"], about("Type of its sessions.", "dhcp", type="string")]
    vlan_range: Annotated[str, about("VLAN ids, the inner ones of two.", "100-999")]
    outer_vlan_range: Annotated[str | None, about("Outer VLAN ids, null without QinQ.", "100-999")]
    overhead_profile: Annotated[str, about("Name of the overhead profile.", "ipoe_qinq")]


class RateLimits(Record, frozen=True):
    """The limits of new VLANs."""

    vlans_per_second: Annotated[int, about("New VLANs a second.", 200)]
    burst: Annotated[int, about("New VLANs at once.", 1000)]
    max_vlans: Annotated[int, about("VLANs in all.", 16384)]


class DemuxConfiguration(Record, frozen=True):
    """The creation of VLANs for subscribers."""

    trunks: Annotated[tuple[str, ...], about("Interfaces on which VLANs are created.", ["trunk0", "trunk1"])]
    vlan_profiles: Annotated[tuple[VlanProfile, ...], about("Profiles of VLANs.")]
    rate_limits: RateLimits
    idle_timeout: Annotated[int, about("Seconds that a VLAN without sessions stays.", 300)]


_SYSTEM = about("Name of the gateway.", {"hostname": "bng1"})
_INTERFACES = about(
    "Interfaces: `trunks` carry subscribers, `uplinks` the rest of the network.",
    {"trunks": ["trunk0", "trunk1"], "uplinks": ["uplink0", "cgnat0"]},
)
_RADIUS = about("The RADIUS server; its secret is masked.", {"server": None, "secret": "********"})
_CGNAT = about(
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
_QOS = about(
    "Rates of sessions without rates of their own, as text with a unit.",
    {"default_down": "100mbit", "default_up": "20mbit"},
)
_DEMUX = about("Creation of VLANs for subscribers.", {"trunks": ["trunk0"], "idle_timeout": 300})
_API = about(
    "This API: its users, whose hashes are masked, and the lifetime of tokens, seconds.",
    {
        "enabled": True,
        "token_lifetime": 3600,
        "users": [{"username": "admin", "password_hash": "********", "role": "admin"}],
    },
)
_BGP = about(
    "The gateway's own AS and its neighbours; null or missing without BGP.",
    {
        "as_number": 64512,
        "router_id": "10.255.0.1",
        "neighbors": [{"address": "10.255.0.2", "remote_as": 64513, "description": "core1"}],
    },
)
_SUBSCRIBERS = about(
    "Subscribers that are authorized without a RADIUS server, and the DNS servers of all subscribers.",
    {"local": [], "dns_servers": ["192.0.2.53"]},
)


class Configuration(Record, frozen=True):
    """The running configuration, one object for each section. The core defines their contents; some sections
    may be left out."""

    system: Annotated[Object, _SYSTEM]
    interfaces: Annotated[Object, _INTERFACES]
    radius: Annotated[Object, _RADIUS]
    cgnat: Annotated[Object, _CGNAT]
    qos: Annotated[Object, _QOS]
    demux: DemuxConfiguration
    api: Annotated[Object, _API]
    bgp: Annotated[Object | UnsetType | None, _BGP] = UNSET
    subscribers: Annotated[Object | UnsetType, _SUBSCRIBERS] = UNSET


class Candidate(Record, frozen=True):
    """The candidate: as the running configuration, but any part may still be missing."""

    system: Annotated[Object | UnsetType, _SYSTEM] = UNSET
    interfaces: Annotated[Object | UnsetType, _INTERFACES] = UNSET
    radius: Annotated[Object | UnsetType, _RADIUS] = UNSET
    cgnat: Annotated[Object | UnsetType, _CGNAT] = UNSET
    qos: Annotated[Object | UnsetType, _QOS] = UNSET
    demux: Annotated[Object | UnsetType, _DEMUX] = UNSET
    api: Annotated[Object | UnsetType, _API] = UNSET
    bgp: Annotated[Object | UnsetType | None, _BGP] = UNSET
    subscribers: Annotated[Object | UnsetType, _SUBSCRIBERS] = UNSET


class Difference(Record, frozen=True):
    """The difference between a configuration and the candidate."""

    diff: configuration.Difference
    confirm_deadline: configuration.Deadline
    impact: impact.Foreseen


class Committed(Record, frozen=True):
    """A commit."""

    message: Annotated[str, done("Committed 1 change")]
    committed: configuration.IsCommitted
    changes: configuration.Changes
    archived_revision: configuration.ArchivedAs
    author: configuration.Author
    comment: configuration.Comment
    committed_at: configuration.CommittedAt
    confirm_deadline: configuration.Deadline
    impact: impact.Effect


class RolledBack(Record, frozen=True):
    """An archived revision that became the candidate."""

    message: Annotated[str, done("Revision 1 is the candidate; commit to make it run")]
    revision: configuration.Revision
    changes: configuration.StagedChanges


class ArchivedConfiguration(configuration.ArchivedRevision, frozen=True):
    """An archived revision with its configuration."""

    configuration: Configuration
