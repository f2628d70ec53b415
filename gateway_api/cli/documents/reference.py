"""Pages of the reference in MyST Markdown: the commands of gatewayctl, from the same tree as `--help`; the
environment variables; the values of states, kinds and results."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

import click

from gateway_api.base.variables import GROUPS
from gateway_api.cli.ctl.__main__ import gatewayctl
from gateway_api.cli.ctl.failures import MEANINGS
from gateway_api.cli.documents.man import ENVIRONMENT
from gateway_api.wire.contract import Enumeration
from gateway_api.wire.core.health import DependencyState, FaultKind
from gateway_api.wire.core.impact import ServiceAction
from gateway_api.wire.core.jobs import JobState
from gateway_api.wire.core.network import DemuxState
from gateway_api.wire.core.sessions import REASON, SessionState
from gateway_api.wire.core.sign_ons import SIGN_ON_REASON
from gateway_api.wire.history import ClockState, TimelineEvent
from gateway_api.wire.hub import DeliveryResult, WebhookOrigin, WebhookState

_COMMANDS = """
Every command has `--help`, and a man page such as gatewayctl-subscribers(1). Almost every command takes
`--context`, `--all` and `--output`: see [gatewayctl](gatewayctl.md).
"""
_SHARED = frozenset({"context", "all", "output", "help"})


def commands_page() -> str:
    return "".join(_commands_page())


def _commands_page() -> Iterator[str]:
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
    yield table(("status", "meaning"), ((str(int(status)), about) for status, about in MEANINGS.items()))
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


_ENVIRONMENT = """
systemd reads the variables of the services from `/etc/gateway-api/gateway-api.env`. An upgrade keeps that
file. A change takes effect with `systemctl restart gateway-api gateway-core`; sessions on Linux stay up. With
an unknown variable that begins with `GATEWAY_API_` the API does not start; the error names it and the nearest
known one. The same is in gateway-api.env(5).
"""


def environment_page() -> str:
    return "".join(_environment_page())


def _environment_page() -> Iterator[str]:
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


def environment_file() -> str:
    """`etc/gateway-api.env`: each variable as a comment, with its default."""
    return "".join(_environment_file())


def _environment_file() -> Iterator[str]:
    yield "# Settings of the gateway under systemd: gateway-api.env(5). Commented lines are the defaults.\n"
    for title, variables in GROUPS.items():
        yield f"\n# {title}\n"
        for each in variables:
            lines = textwrap.wrap(each.meaning, 118, break_on_hyphens=False)
            about = "\n".join(f"# {line}" for line in lines)
            yield f"\n{about}\n#{each.name}={each.default}\n"


_VALUES = """
What the states, kinds and reasons in responses, in the log and on the page mean.
"""
#: Reasons are open: a core may know another one.
_REASONS = {"End of a session": REASON, "Failed sign-on": SIGN_ON_REASON}
_ENUMERATIONS: dict[str, type[Enumeration]] = {
    "State of a session": SessionState,
    "State of a dependency": DependencyState,
    "Kind of a fault": FaultKind,
    "State of a job": JobState,
    "State of a webhook": WebhookState,
    "Origin of a webhook": WebhookOrigin,
    "Result of a delivery": DeliveryResult,
    "Event in a timeline": TimelineEvent,
    "Clock of a record of the history": ClockState,
    "State of a VLAN of the demux": DemuxState,
    "Action on a service at a commit": ServiceAction,
}


def values_page() -> str:
    return "".join(_values_page())


def _values_page() -> Iterator[str]:
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
