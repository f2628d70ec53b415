"""Man pages and pages of the reference that are rendered from templates: the commands, from the same command
trees as `--help`; the configuration, from its definition; the environment variables and the values. The
module `operations` generates the pages of the OpenAPI document."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click
import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gateway_api.cli.api import api
from gateway_api.hub.interface import DeliveryResult, WebhookOrigin, WebhookState
from gateway_contract.base.variables import GROUPS
from gateway_contract.configuration import ROOT, Choice, Field, Flag, Leaf, ListOf, Object, WholeNumber, walk
from gateway_contract.core.health import DependencyState, FaultKind, TriggerRefusal
from gateway_contract.core.impact import ServiceAction
from gateway_contract.core.jobs import JobState
from gateway_contract.core.network import DemuxState
from gateway_contract.core.sessions import REASON, SessionState
from gateway_contract.core.sign_ons import SIGN_ON_REASON
from gateway_contract.history import ClockState, TimelineEvent
from gateway_contract.program import Group, summarize
from gateway_contract.version import PRODUCT, VERSION
from gateway_core.__main__ import core
from gateway_core.configuration.rules import get_strict_rules
from gateway_core.gateways.linux.daemons.linux_services import DAEMONS
from gateway_relay.__main__ import relay
from gateway_relay.messages import SUBJECTS, SnapshotPart
from gatewayctl.__main__ import gatewayctl
from gatewayctl.errors import EXIT_STATUSES

#: Reasons are open: another core may have further ones.
_REASONS = {"End of a session": REASON, "Failed sign-on": SIGN_ON_REASON}
_ENUMERATIONS = {
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


#: Bodies of the messages of the relay, by subject.
_EVENT_BODY = "the `data` of the [event](events.md)"
_BODIES = {
    "events.session_up": _EVENT_BODY,
    "events.session_down": _EVENT_BODY,
    "events.session_rate": _EVENT_BODY,
    "snapshot": "[a part of the snapshot](#snapshots)",
    "commits": "the record of the commit, as in `GET /system/config/archive`",
    "faults": "`GET /system/faults`",
    "health": "`GET /system/health/detail`",
    "audit": "the record, as in `GET /audit`",
}


def generate_reference() -> dict[str, str]:
    """Return a map from file name to text, for the pages of the reference."""
    return {
        "commands.md": render("commands.md.j2", command=gatewayctl),
        "configuration.md": render("configuration.md.j2", configuration=ROOT, effects=list(_list_effects())),
        "environment.md": render("environment.md.j2"),
        "relay.md": render(
            "relay.md.j2",
            command=relay,
            subjects=SUBJECTS,
            bodies=_BODIES,
            snapshot=list(_describe_fields(SnapshotPart)),
        ),
        "values.md": render("values.md.j2", reasons=_REASONS, enumerations=_ENUMERATIONS),
    }


def generate_man_pages() -> dict[str, str]:
    """Return a map from file name to text, for all man pages."""
    return {
        "gateway-api.8": render("gateway-api.8.j2", name="gateway-api", section=8, command=api),
        "gateway-core.8": render("gateway-core.8.j2", name="gateway-core", section=8, command=core),
        "gateway-relay.8": render("gateway-relay.8.j2", name="gateway-relay", section=8, command=relay),
        "gateway-api.env.5": render("gateway-api.env.5.j2", name="gateway-api.env", section=5),
        **generate_command_pages(gatewayctl),
    }


def generate_relay_settings() -> str:
    """Return the environment file of the relay."""
    context = click.Context(relay, **relay.context_settings)
    variables = []
    for option in relay.params:
        if isinstance(option, click.Option) and (help := option.help) and option.show_envvar:
            default = option.default if isinstance(option.default, str | int | Path) else ""
            name = option.envvar or f"{context.auto_envvar_prefix}_{option.name}".upper()
            variables.append((name, f"{help[0].upper()}{help[1:]}.", default))
    return render("gateway-relay.env.j2", variables=variables)


def generate_command_pages(root: click.Group) -> dict[str, str]:
    """Return a map from file name to text, for the man pages of gatewayctl and its commands."""
    commands = {"gatewayctl": root} | {f"gatewayctl {name}": each for name, each in root.commands.items()}
    pages = {}
    for path, command in commands.items():
        name = path.replace(" ", "-")
        template = "gatewayctl.1.j2" if command is root else "gatewayctl-command.1.j2"
        pages[f"{name}.1"] = render(template, name=name, path=path, section=1, command=command)
    return pages


def render(template: str, **values: Any) -> str:
    """Render the template with the given name, and return the text. `values` are the variables of the
    template."""
    return _create_environment().get_template(template).render(**values)


@cache
def _create_environment() -> Environment:
    environment = Environment(
        # The pages are roff and Markdown, which have escapes of their own.
        autoescape=False,
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.globals |= {
        "groups": GROUPS,
        "product": PRODUCT,
        "shared_options": _SHARED_OPTIONS,
        "statuses": EXIT_STATUSES,
        "version": VERSION,
    }
    environment.filters |= {
        "cell": format_cell,
        "code": lambda text: f"`{format_cell(text)}`" if text else "",
        "describe_value": _describe_value,
        "items": _format_items,
        "joined": join_paragraphs,
        "leaves": lambda field, name: [
            each for each in walk(field, name) if not isinstance(each[1].kind, Object)
        ],
        "options": _list_options,
        "paragraphs": _format_paragraphs,
        "removesuffix": str.removesuffix,
        "roff": escape_roff,
        "summarize": summarize,
        "usage": lambda command: " ".join(command.collect_usage_pieces(click.Context(command))),
        "walk": _walk_commands,
    }
    return environment


def _describe_fields(record: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    """Yield pairs of name and description for the fields of a record."""
    for field in msgspec.inspect.type_info(record).fields:
        yield field.name, field.type.extra_json_schema["description"]


# Markdown


def format_cell(text: str) -> str:
    """Return a text as one line that is escaped for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", r"\|")


def join_paragraphs(text: str) -> str:
    """Return a text in which each paragraph is one line, so that the reader's window wraps the text."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


# Roff


def escape_roff(text: str) -> str:
    """Return a text that is escaped for man(7). Text in backticks becomes bold."""
    safe = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq").replace("'", r"\(aq")
    safe = re.sub("`([^`]*)`", r"\\fB\1\\fR", safe)
    return rf"\&{safe}" if safe.startswith(".") else safe


def _format_paragraphs(text: str) -> str:
    paragraphs = re.split(r"\n\s*\n", text.strip())
    return "\n".join(f".PP\n{escape_roff(' '.join(each.split()))}" for each in paragraphs)


def _format_items(items: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    pairs = items.items() if isinstance(items, Mapping) else items
    return "\n".join(f".TP\n\\fB{escape_roff(name)}\\fR\n{escape_roff(about)}" for name, about in pairs)


# Commands

#: Options that almost every command has: they are in the page of gatewayctl.
_SHARED_OPTIONS = frozenset({"context", "all", "on", "deadline", "output", "columns"})
#: Commands of a unit, which nobody types.
_UNIT_COMMANDS = frozenset({"join-certificate"})


def _list_options(command: click.Command, omitted: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Return pairs of option and help text for a command, without the options whose names are in
    `omitted`."""
    context = click.Context(command, **command.context_settings)
    options = [each for each in command.params if isinstance(each, click.Option) and each.name not in omitted]
    return [record for each in options if (record := each.get_help_record(context))]


def _walk_commands(group: Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield a pair for each command of a program and of the program's groups: the words that call the
    command, and the command. `path` is the words before the name of a command."""
    for name in (name for _, names in group.list_sections() for name in names):
        command = group.commands[name]
        if isinstance(command, Group):
            yield from _walk_commands(command, f"{path}{name} ")
        elif name not in _UNIT_COMMANDS:
            yield path + name, command


# Configuration


def _list_effects() -> Iterator[tuple[str, str]]:
    """Yield pairs of configuration path and effect: what a commit that changes the path does to daemons and
    sessions."""
    for path, field in walk(ROOT):
        if effect := "; ".join(_describe_effects(path, field)):
            yield path, effect


def _describe_effects(path: str, field: Field) -> Iterator[str]:
    effects = {daemon.name: daemon.effects[path] for daemon in DAEMONS if path in daemon.effects}
    sentences = []
    for action in ServiceAction:
        if names := [name for name, effect in effects.items() if effect is action]:
            *others, last = names
            sentences.append(f"{', '.join(others)} and {last} {action}" if others else f"{last} {action}s")
    if sentences:
        yield ", ".join(sentences)
    yield from (effect for effect in effects.values() if not isinstance(effect, ServiceAction))
    if field.effect is not None:
        yield field.effect


def _describe_value(field: Field) -> str:
    text = ""
    match field.kind:
        case Choice() as kind:
            text = " or ".join(f"`{each}`" for each in sorted(kind.choices))
        case WholeNumber() as kind:
            text = f"{kind.first} to {kind.last}"
        case Flag():
            text = "`true` or `false`"
        case ListOf() as kind:
            most = "" if kind.max_items is None else f", at most {kind.max_items}"
            rule = f"; each {_describe_rule(kind.item, kind.kind)}" if isinstance(kind.kind, Leaf) else ""
            text = f"list{most}{rule}"
        case Leaf() as kind:
            text = _describe_rule(field, kind)
    return text + (", or `null`" if field.nullable else "")


def _describe_rule(field: Field, kind: Leaf) -> str:
    """Return a text with the errors for two values: a value that no text field accepts, and a value that
    breaks the stricter rule of the field. The common beginning of both errors is removed."""
    strict = (rule.error for rule in get_strict_rules(field))
    try:
        kind.load(" ")
    except ValueError as error:
        (message,) = error.args
        rules = dict.fromkeys(text.removeprefix("must be ") for text in (message, *strict))
        # A backslash is an escape in Markdown.
        return "; ".join(rules).replace("\\", r"\\")
    raise AssertionError(field)
