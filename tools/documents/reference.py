"""Pages of the reference in MyST Markdown: the commands of gatewayctl, from the same tree as `--help`; the
paths of the configuration, from its definition; the environment variables; the values of states, kinds and
results. Those of the OpenAPI document are in `operations`."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

import click

from gateway_api.hub.interface import DeliveryResult, WebhookOrigin, WebhookState
from gateway_contract.base.variables import GROUPS
from gateway_contract.configuration import ROOT, Choice, Field, Flag, Leaf, ListOf, Object, WholeNumber, walk
from gateway_contract.contract import Enumeration
from gateway_contract.core.health import DependencyState, FaultKind, TriggerRefusal
from gateway_contract.core.impact import ServiceAction
from gateway_contract.core.jobs import JobState
from gateway_contract.core.network import DemuxState
from gateway_contract.core.sessions import REASON, SessionState
from gateway_contract.core.sign_ons import SIGN_ON_REASON
from gateway_contract.history import ClockState, TimelineEvent
from gateway_core.configuration.rules import get_strict_rules
from gateway_core.gateways.linux.daemons.linux_services import DAEMONS
from gatewayctl.__main__ import gatewayctl
from gatewayctl.errors import ExitStatus
from tools.documents.man import ENVIRONMENT

_COMMANDS = """
Every command has `--help`, and a man page such as gatewayctl-subscribers(1). Almost every command takes
`--context`, `--all` and `--output`: see [gatewayctl](gatewayctl.md).
"""
_SHARED = frozenset({"context", "all", "output", "help"})


def commands_page() -> Iterator[str]:
    yield "# Commands of gatewayctl\n\n" + paragraph(_COMMANDS)
    for name, command in gatewayctl.commands.items():
        yield f"## gatewayctl {name}\n\n"
        if isinstance(command, click.Group):
            yield paragraph(command.help or "")
            for inner_name, inner in command.commands.items():
                yield f"### gatewayctl {name} {inner_name}\n\n"
                yield from _command(f"gatewayctl {name} {inner_name}", inner)
        else:
            yield from _command(f"gatewayctl {name}", command)
    yield "## Exit status\n\n"
    yield table(("status", "meaning"), ((str(int(status)), status.meaning) for status in ExitStatus))
    yield "\nWith `--all`, it is the highest of all gateways.\n\n"
    yield "## See also\n\n- [gatewayctl](gatewayctl.md): contexts, output formats\n"
    yield "- [Many gateways](../how-to/many-gateways.md)\n"


def _command(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command)
    yield f"    {' '.join([path, *command.collect_usage_pieces(context)])}\n\n"
    yield paragraph(command.help or "")
    options = [each for each in command.params if isinstance(each, click.Option) and each.name not in _SHARED]
    records = [record for each in options if (record := each.get_help_record(context))]
    if records:
        yield table(("option", "meaning"), ((code(name), about) for name, about in records)) + "\n"


_CONFIGURATION = """
A path names a value: `gatewayctl config set PATH VALUE`. A segment in capitals stands for the key of an
item, such as the username in `api.users.alice.role`. If you use a section or an item, you must set each of
its paths that has no default.

Rules between values are checked at the commit, and an error names the path and the rule.
"""
_EFFECTS = """
`gatewayctl config compare` shows the effect of a commit beforehand, with the number of sessions that end.
A reload ends no session, and neither does a restart of dnsmasq. Changes of all other paths affect no
service: the core or the API uses the new value at once.
"""


def configuration_page() -> Iterator[str]:
    """All paths of the configuration, with the strict rules of the core, and what a commit of them does."""
    yield "# Configuration paths\n\n" + paragraph(_CONFIGURATION)
    for name, field in ROOT.members.items():
        yield f"## {name}\n\n" + paragraph(field.meaning)
        leaves = (each for each in walk(field, name) if not isinstance(each[1].kind, Object))
        yield table(("path", "value", "default", "meaning"), (_path_row(*each) for each in leaves)) + "\n"
    yield "## Effect of a commit\n\n" + paragraph(_EFFECTS)
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


def _path_row(path: str, field: Field) -> tuple[str, str, str, str]:
    return code(path), _value(field), code(field.default_json), field.meaning


def _value(field: Field) -> str:
    text = ""
    match field.kind:
        case Choice() as kind:
            text = " or ".join(map(code, sorted(kind.choices)))
        case WholeNumber() as kind:
            text = f"{kind.first} to {kind.last}"
        case Flag():
            text = "`true` or `false`"
        case ListOf() as kind:
            most = "" if kind.most is None else f", at most {kind.most}"
            rule = f"; each {_rule(kind.item, kind.kind)}" if isinstance(kind.kind, Leaf) else ""
            text = f"list{most}{rule}"
        case Leaf() as kind:
            text = _rule(field, kind)
    return text + (", or `null`" if field.nullable else "")


def _rule(field: Field, kind: Leaf) -> str:
    """The errors of a value that no text field takes, and of one that breaks a strict rule, without their
    first words."""
    strict = (rule.error for rule in get_strict_rules(field))
    try:
        kind.load(" ")
    except ValueError as error:
        (message,) = error.args
        rules = dict.fromkeys(text.removeprefix("must be ") for text in (message, *strict))
        # A backslash is an escape in Markdown.
        return "; ".join(rules).replace("\\", r"\\")
    raise AssertionError(field)


_ENVIRONMENT = """
systemd reads the variables of the services from `/etc/gateway-api/gateway-api.env`. An upgrade keeps that
file. A change takes effect with `systemctl restart gateway-api gateway-core`; sessions on Linux stay up. With
an unknown variable that begins with `GATEWAY_API_` the API does not start; the error names it and the nearest
known one. gateway-api.env(5) has the same list.
"""


def environment_page() -> Iterator[str]:
    yield "# Environment variables\n\n" + paragraph(_ENVIRONMENT)
    for title, variables in GROUPS.items():
        yield f"## {title}\n\n"
        rows = ((code(each.name), each.meaning, code(each.default)) for each in variables)
        yield table(("variable", "meaning", "default"), rows) + "\n"
    yield "## gatewayctl\n\n" + table(
        ("variable", "meaning"),
        ((", ".join(map(code, names.split(", "))), about) for names, about in ENVIRONMENT),
    )
    yield "\n## See also\n\n- [Programs](programs.md)\n- [Restrict access](../how-to/restrict-access.md)\n"


def environment_file() -> Iterator[str]:
    """`etc/gateway-api.env`: each variable as a comment, with its default."""
    yield "# Settings of the gateway under systemd: gateway-api.env(5). Commented lines are the defaults.\n"
    for title, variables in GROUPS.items():
        yield f"\n# {title}\n"
        for each in variables:
            lines = textwrap.wrap(each.meaning, 118, break_on_hyphens=False)
            about = "\n".join(f"# {line}" for line in lines)
            yield f"\n{about}\n#{each.name}={each.default}\n"


_VALUES = """
The meaning of the states, kinds and reasons in responses, in the log and on the live page.
"""
#: Reasons are open: a core may know another one.
_REASONS = {"End of a session": REASON, "Failed sign-on": SIGN_ON_REASON}
_ENUMERATIONS: dict[str, type[Enumeration]] = {
    "State of a session": SessionState,
    "State of a dependency": DependencyState,
    "Kind of a fault": FaultKind,
    "Refusal of the demux": TriggerRefusal,
    "State of a job": JobState,
    "State of a webhook": WebhookState,
    "Origin of a webhook": WebhookOrigin,
    "Result of a delivery": DeliveryResult,
    "Event in a timeline": TimelineEvent,
    "Clock of a record of the history": ClockState,
    "State of a VLAN of the demux": DemuxState,
    "Action on a service at a commit": ServiceAction,
}


def values_page() -> Iterator[str]:
    yield "# Values\n\n" + paragraph(_VALUES)
    for title, reason in _REASONS.items():
        yield f"## {title}\n\n" + paragraph(reason.description or "")
    for title, values in _ENUMERATIONS.items():
        yield f"## {title}\n\n"
        yield table(("value", "meaning"), ((code(each.value), each.comment) for each in values)) + "\n"
    yield "## See also\n\n- [Operations](operations.md)\n- [Troubleshooting](../troubleshooting.md)\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Empty without rows."""
    lines = [_row(row) for row in rows]
    return "".join([_row(head), _row(["---"] * len(head)), *lines]) if lines else ""


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def paragraph(text: str) -> str:
    """On one line, which the reader's window wraps."""
    return "".join(f"{' '.join(each.split())}\n\n" for each in text.strip().split("\n\n"))


def _row(cells: Sequence[str]) -> str:
    return "".join(f"| {' '.join(cell.split()).replace('|', chr(92) + '|')} " for cell in cells) + "|\n"
