"""The page of all paths of the configuration: from the schemas of the OpenAPI document, and the keys of
lists from those of the core."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marshmallow import ValidationError
from marshmallow.fields import List, Nested
from marshmallow.validate import Validator

from gateway_api.cli.documents.reference import code, paragraph, table
from gateway_api.core.configuration.fields import key_of, strict_rules
from gateway_api.core.configuration.sections import ROOT
from gateway_api.core.gateways.linux.daemons.linux_services import DAEMONS
from gateway_api.wire.core.impact import ServiceAction

_INTRODUCTION = """
A path names a value: `gatewayctl config set PATH VALUE`. A segment in capitals stands for the key of an
item, such as the username in `api.users.alice.role`. If you use a section or an item, you must set each of
its paths that has no default.

Rules between values are checked at the commit, and an error names the path and the rule.
"""
_EFFECTS_INTRODUCTION = """
`gatewayctl config compare` shows the effect of a commit beforehand, with the number of sessions that end.
A reload ends no session, and neither does a restart of dnsmasq. What is not in this table affects no
service: the core or the API uses the new value at once.
"""
#: What a commit does to sessions, by the beginning of the changed path.
_SESSIONS = {
    "cgnat.enabled": "sessions of the range are steered, or no longer",
    "cgnat.source_range": "sessions keep their addresses",
    "qos": "sessions that start from then on have these rates; sessions that are up keep theirs",
    "demux.trunks": "sessions on a removed trunk end",
}


@dataclass(frozen=True)
class _Leaf:
    """A path with a value of its own, the schema of that, and its field in the core."""

    path: str
    schema: Mapping[str, Any]
    field: Any


def page(schemas: Mapping[str, Any]) -> str:
    """`schemas` are the components of the OpenAPI document."""
    return "".join(_page(schemas))


def _page(schemas: Mapping[str, Any]) -> Iterator[str]:
    paths: list[str] = []
    yield "# Configuration paths\n\n" + paragraph(_INTRODUCTION)
    for name, schema in schemas["Configuration"]["properties"].items():
        section = _resolved(schemas, schema)
        yield f"## {name}\n\n" + paragraph(_parted(section["description"])[0])
        leaves = list(_leaves(schemas, schema, ROOT.schema.fields[name], name))
        paths += (leaf.path for leaf in leaves)
        yield table(("path", "value", "default", "meaning"), map(_row, leaves)) + "\n"
    yield "## Effect of a commit\n\n" + paragraph(_EFFECTS_INTRODUCTION)
    yield table(("change of", "effect"), _effects(paths))
    yield "\n## See also\n\n- [Configuration](configuration-api.md): edit, compare, commit\n"
    yield "- [Commit a change](../how-to/commit.md)\n"


def _effects(leaves: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The beginning of a changed path, and what a commit does then: to the daemons, as their modules say it,
    and to sessions. In the order of the leaves."""

    def place(path: str) -> int:
        return next(number for number, leaf in enumerate(leaves) if f"{leaf}.".startswith(f"{path}."))

    paths = {*_SESSIONS, *(path for daemon in DAEMONS for path in daemon.effects)}
    for path in sorted(paths, key=place):
        yield code(path), "; ".join(_effect(path))


def _effect(path: str) -> Iterator[str]:
    said = {daemon.name: daemon.effects[path] for daemon in DAEMONS if path in daemon.effects}
    acts = []
    for action in ServiceAction:
        if names := [name for name, effect in said.items() if effect is action]:
            *others, last = names
            acts.append(f"{', '.join(others)} and {last} {action}" if others else f"{last} {action}s")
    if acts:
        yield ", ".join(acts)
    yield from (effect for effect in said.values() if not isinstance(effect, ServiceAction))
    if path in _SESSIONS:
        yield _SESSIONS[path]


def _leaves(schemas: Mapping[str, Any], schema: Mapping[str, Any], field: Any, path: str) -> Iterator[_Leaf]:
    """`field` is that of the core's schema."""
    resolved = _resolved(schemas, schema)
    if "properties" in resolved:
        fields = field.schema.fields
        for name, inner in resolved["properties"].items():
            yield from _leaves(schemas, inner, fields[name], f"{path}.{name}")
    elif isinstance(field, List) and isinstance(field.inner, Nested):
        yield _Leaf(path, resolved, field)
        key, item = str(key_of(field)), _resolved(schemas, resolved["items"])
        for name, inner in item["properties"].items():
            yield from _leaves(
                schemas, inner, field.inner.schema.fields[name], f"{path}.{key.upper()}.{name}"
            )
    else:
        yield _Leaf(path, resolved, field)


def _resolved(schemas: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """With what it refers to. What may be null has `nullable`."""
    choices = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    chosen = choices[0] if len(choices) == 1 else {}
    name = (chosen or schema).get("$ref", "").rpartition("/")[2]
    return {**schemas.get(name, {}), **chosen, **schema, "nullable": bool(chosen)}


def _row(leaf: _Leaf) -> tuple[str, str, str, str]:
    meaning, default = _parted(leaf.schema["description"])
    return code(leaf.path), _value(leaf), code(default), meaning


def _parted(description: str) -> tuple[str, str]:
    """The meaning, and the default that `web.configuration_sections` puts behind it."""
    meaning, _, default = description.partition(" Default: ")
    return meaning, default.removesuffix(".")


def _value(leaf: _Leaf) -> str:
    schema = leaf.schema
    if choices := schema.get("enum"):
        text = " or ".join(map(code, choices))
    elif schema["type"] == "integer":
        text = f"{schema['minimum']} to {schema['maximum']}"
    elif schema["type"] == "boolean":
        text = "`true` or `false`"
    elif schema["type"] == "array":
        most = f", at most {schema['maxItems']}" if "maxItems" in schema else ""
        rule = "" if isinstance(leaf.field.inner, Nested) else f"; each {_rule(leaf.field.inner)}"
        text = f"list{most}{rule}"
    else:
        text = _rule(leaf.field)
    return text + (", or `null`" if schema["nullable"] else "")


def _rule(field: Any) -> str:
    """The core's messages about a value that no text field takes, without their first words, and about one
    that breaks a strict rule."""
    try:
        field.deserialize(" ")
    except ValidationError as error:
        (message,) = error.messages
        strict = [str(rule.error) for rule in strict_rules(field) if isinstance(rule, Validator)]
        # A backslash is an escape in Markdown.
        rules = dict.fromkeys(text.removeprefix("must be ") for text in (message, *strict))
        return "; ".join(rules).replace("\\", r"\\")
    raise AssertionError(field)
