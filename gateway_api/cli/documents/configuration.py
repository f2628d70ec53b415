"""The page of all paths of the configuration, from its definition; and the strict rules of the core."""

from collections.abc import Iterator

from gateway_api.cli.documents.reference import code, paragraph, table
from gateway_api.core.configuration.rules import strict_rules
from gateway_api.core.gateways.linux.daemons.linux_services import DAEMONS
from gateway_api.wire.configuration import ROOT, Choice, Field, Flag, Leaf, Many, Object, Whole, walk
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


def page() -> str:
    return "".join(_page())


def _page() -> Iterator[str]:
    yield "# Configuration paths\n\n" + paragraph(_INTRODUCTION)
    for name, field in ROOT.members.items():
        yield f"## {name}\n\n" + paragraph(field.meaning)
        leaves = (each for each in walk(field, name) if not isinstance(each[1].kind, Object))
        yield table(("path", "value", "default", "meaning"), (_row(*each) for each in leaves)) + "\n"
    yield "## Effect of a commit\n\n" + paragraph(_EFFECTS_INTRODUCTION)
    yield table(("change of", "effect"), _effects())
    yield "\n## See also\n\n- [Configuration](configuration-api.md): edit, compare, commit\n"
    yield "- [Commit a change](../how-to/commit.md)\n"


def _effects() -> Iterator[tuple[str, str]]:
    """The beginning of a changed path, and what a commit does then: to the daemons, as their modules say it,
    and to sessions."""
    for path, field in walk(ROOT):
        if effect := "; ".join(_effect(path, field)):
            yield code(path), effect


def _effect(path: str, field: Field) -> Iterator[str]:
    said = {daemon.name: daemon.effects[path] for daemon in DAEMONS if path in daemon.effects}
    acts = []
    for action in ServiceAction:
        if names := [name for name, effect in said.items() if effect is action]:
            *others, last = names
            acts.append(f"{', '.join(others)} and {last} {action}" if others else f"{last} {action}s")
    if acts:
        yield ", ".join(acts)
    yield from (effect for effect in said.values() if not isinstance(effect, ServiceAction))
    if field.effect is not None:
        yield field.effect


def _row(path: str, field: Field) -> tuple[str, str, str, str]:
    return code(path), _value(field), code(field.default_json), field.meaning


def _value(field: Field) -> str:
    text = ""
    match field.kind:
        case Choice() as kind:
            text = " or ".join(map(code, sorted(kind.choices)))
        case Whole() as kind:
            text = f"{kind.first} to {kind.last}"
        case Flag():
            text = "`true` or `false`"
        case Many() as kind:
            most = "" if kind.most is None else f", at most {kind.most}"
            rule = f"; each {_rule(kind.item, kind.kind)}" if isinstance(kind.kind, Leaf) else ""
            text = f"list{most}{rule}"
        case Leaf() as kind:
            text = _rule(field, kind)
    return text + (", or `null`" if field.nullable else "")


def _rule(field: Field, kind: Leaf) -> str:
    """The errors of a value that no text field takes, and of one that breaks a strict rule, without their
    first words."""
    strict = (rule.error for rule in strict_rules(field))
    try:
        kind.load(" ")
    except ValueError as error:
        (message,) = error.args
        rules = dict.fromkeys(text.removeprefix("must be ") for text in (message, *strict))
        # A backslash is an escape in Markdown.
        return "; ".join(rules).replace("\\", r"\\")
    raise AssertionError(field)
