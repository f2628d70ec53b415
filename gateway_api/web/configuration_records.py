"""The records of responses about the configuration. Its sections come from `wire/configuration.py`, the
records of the core from `wire/core/`."""

from functools import cache
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway_api.web import records
from gateway_api.web.records import done
from gateway_api.wire import configuration as definition
from gateway_api.wire.configuration import ROOT, Field, Many, Object, Whole
from gateway_api.wire.contract import Record, about
from gateway_api.wire.core import configuration, impact


def _struct(
    name: str, text: str | None, fields: list[Any], base: type[msgspec.Struct] = Record
) -> type[msgspec.Struct]:
    return msgspec.defstruct(name, fields, bases=(base,), namespace={"__doc__": text}, frozen=True)


@cache
def _record(kind: Object) -> type[msgspec.Struct]:
    """A section, or an item of a list, as it is in JSON."""
    fields = [_member(name, field) for name, field in kind.fields.items()]
    suffix = "Configuration" if kind in (field.kind for field in ROOT.members.values()) else ""
    return _struct(kind.section.__name__ + suffix, kind.section.__doc__, fields)


def _member(name: str, field: Field) -> tuple[Any, ...]:
    made = _type(field)
    if field.nullable:
        made = made | None
    if not field.required:
        made = made | UnsetType
    if field.documented is not None:
        made = Annotated[made, _documentation(field, field.documented)]
    return (name, made) if field.required else (name, made, UNSET)


def _type(field: Field) -> Any:
    match field.kind:
        case Object() as kind:
            return _record(kind)
        case Many() as kind:
            return tuple[_type(kind.item), ...]  # type: ignore[misc]  # it is made at run time
        case kind:
            return kind.type


def _documentation(field: Field, documented: Meta) -> Meta:
    schema = dict(documented.extra_json_schema or {})
    if isinstance(field.kind, Whole):
        schema |= {"minimum": field.kind.first, "maximum": field.kind.last}
    if isinstance(field.kind, Many) and field.kind.most is not None:
        schema["maxItems"] = field.kind.most
    if field.key is not None:
        schema["x-key"] = field.key
    default = "" if field.required else f" Default: {field.default_json}."
    return about(f"{documented.description}{default}", *(documented.examples or ()), **schema)


def _part(name: str, field: Field) -> tuple[Any, ...]:
    """A section of a candidate, which may lack parts of it."""
    made = records.Object | UnsetType | None if field.nullable else records.Object | UnsetType
    return name, Annotated[made, about(field.section_text, field.sample)], UNSET


Configuration = _record(Object(definition.Configuration))
DemuxConfiguration = _record(Object(definition.Demux))
Candidate = _struct(
    "Candidate",
    "The candidate: as the running configuration, but any part may still be missing.",
    [_part(name, field) for name, field in ROOT.members.items()],
)
ArchivedConfiguration = _struct(
    "ArchivedConfiguration",
    "An archived revision with its configuration.",
    [("configuration", Configuration)],
    configuration.ArchivedRevision,
)


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
