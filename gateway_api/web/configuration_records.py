"""The records of responses about the configuration. Its sections are in `configuration_sections`, the records
of the core in `wire/`."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from gateway_api.web import configuration_sections as sections
from gateway_api.web.configuration_sections import Configuration, DemuxConfiguration
from gateway_api.web.records import Object, done
from gateway_api.wire.contract import Record, about
from gateway_api.wire.core import configuration, impact


def _section(section: type[Record], example: object) -> Meta:
    """The documentation of a section that may be incomplete."""
    return about(" ".join(str(section.__doc__).split()), example)


_SYSTEM = _section(sections.SystemConfiguration, {"hostname": "bng1"})
_INTERFACES = _section(
    sections.InterfacesConfiguration, {"trunks": ["trunk0", "trunk1"], "uplinks": ["uplink0", "cgnat0"]}
)
_RADIUS = _section(sections.RadiusConfiguration, {"server": None, "secret": "********"})
_CGNAT = _section(sections.CgnatConfiguration, {"enabled": True, "vrf_name": "cgnat", "vrf_table": 100})
_QOS = _section(sections.QosConfiguration, {"default_down": "100mbit", "default_up": "20mbit"})
_DEMUX = _section(DemuxConfiguration, {"trunks": ["trunk0"], "idle_timeout": 300})
_API = _section(sections.ApiConfiguration, {"enabled": True, "token_lifetime": 3600})
_BGP = _section(sections.BgpConfiguration, {"as_number": 64512, "router_id": "10.255.0.1"})
_SUBSCRIBERS = _section(sections.SubscribersConfiguration, {"local": [], "dns_servers": ["192.0.2.53"]})
_HISTORY = _section(sections.HistoryConfiguration, {"days": 90})


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
    history: Annotated[Object | UnsetType, _HISTORY] = UNSET


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

    message: Annotated[str, done("Revision 1 is the candidate; a commit makes it the running configuration")]
    revision: configuration.Revision
    changes: configuration.StagedChanges


class ArchivedConfiguration(configuration.ArchivedRevision, frozen=True):
    """An archived revision with its configuration."""

    configuration: Configuration
