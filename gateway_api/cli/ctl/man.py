"""The man pages (man(7)), from the same tree of commands as `--help`: one page for each command of the first
level, and `gatewayctl(1)` for what they share."""

import re
from collections.abc import Container, Iterable, Iterator

import click

from gateway_api.cli.ctl.failures import MEANINGS
from gateway_api.version import PRODUCT, VERSION

_PROGRAM = "gatewayctl"
#: Options that almost every command has: they are in the page of the program.
_SHARED = frozenset({"context", "all", "output"})

_FORMATS = (
    ("table", "for people, the default: the most important fields of each record"),
    ("json", "the records of the API with all fields: a list, or one record"),
    ("csv", "RFC 4180 with a line of names; fields that are lists or objects are JSON"),
    (
        "jsonpath=EXPRESSION",
        "what an expression (RFC 9535) selects from the JSON, one value per line: '$[*].username'",
    ),
)
_ENVIRONMENT = (
    ("GATEWAY_URL, GATEWAY_CA", "the gateway and its CA certificate, where there is no --context"),
    ("GATEWAY_USER, GATEWAY_PASSWORD_FILE", "log in by themselves, and again after the token has expired"),
    ("GATEWAY_CORE_SOCKET", "the core's socket, for gatewayctl-rescue(1)"),
    ("NO_COLOR", "if it is set, there are no colours; only a terminal has any"),
    ("VISUAL, EDITOR", "the editor of config edit"),
)
_FILES = (
    ("~/.config/gatewayctl/contexts.json", "the contexts with their tokens, in XDG_CONFIG_HOME if it is set"),
)


def pages(root: click.Group) -> dict[str, str]:
    """The text of each page by the name of its file."""
    made = {f"{_PROGRAM}.1": "".join(_of_program(root))}
    for name, command in root.commands.items():
        made[f"{_PROGRAM}-{name}.1"] = "".join(_of_command(f"{_PROGRAM} {name}", command))
    return made


def _of_program(root: click.Group) -> Iterator[str]:
    yield _head(_PROGRAM)
    yield _name(_PROGRAM, root)
    yield _synopsis(_PROGRAM, root)
    yield ".SH DESCRIPTION\n" + _paragraphs(root.help)
    yield ".SH OPTIONS\n" + _options(root)
    yield ".SH COMMANDS\n"
    yield _items((f"{_PROGRAM}-{name}(1)", _summary(command)) for name, command in root.commands.items())
    for title, items in (("OUTPUT", _FORMATS), ("ENVIRONMENT", _ENVIRONMENT), ("FILES", _FILES)):
        yield f".SH {title}\n" + _items((name, f"{about}.") for name, about in items)
    yield ".SH EXIT STATUS\n"
    yield _items((str(int(status)), f"{about}.") for status, about in MEANINGS.items())
    yield "With --all, it is the highest of all gateways.\n".replace("-", r"\-")


def _of_command(path: str, command: click.Command) -> Iterator[str]:
    yield _head(path.replace(" ", "-"))
    yield _name(path.replace(" ", "-"), command)
    yield _synopsis(path, command)
    yield ".SH DESCRIPTION\n" + _paragraphs(command.help)
    if isinstance(command, click.Group):
        yield ".SH COMMANDS\n"
        for name, inner in command.commands.items():
            yield f".SS {_escaped(f'{name} {_pieces(inner)}'.strip())}\n"
            yield _paragraphs(inner.help) + _options(inner, _SHARED)
    elif options := _options(command, _SHARED):
        yield f".SH OPTIONS\n{options}"
    yield f".SH SEE ALSO\n.BR {_PROGRAM} (1)\nhas the options of all commands, and the exit statuses.\n"


def _head(name: str) -> str:
    return f'.TH "{_escaped(name.upper())}" 1 "" "gateway-api {VERSION}" "{PRODUCT}"\n'


def _name(name: str, command: click.Command) -> str:
    return f".SH NAME\n{_escaped(name)} \\- {_escaped(_summary(command).rstrip('.'))}\n"


def _synopsis(path: str, command: click.Command) -> str:
    return f".SH SYNOPSIS\n\\fB{_escaped(path)}\\fR {_escaped(_pieces(command))}\n"


def _pieces(command: click.Command) -> str:
    """The words of its usage: `[OPTIONS] TARGET`."""
    return " ".join(command.collect_usage_pieces(click.Context(command)))


def _summary(command: click.Command) -> str:
    return command.get_short_help_str(limit=1000)


def _options(command: click.Command, but: Container[str] = ()) -> str:
    context = click.Context(command)
    options = [each for each in command.params if isinstance(each, click.Option) and each.name not in but]
    return _items(record for each in options if (record := each.get_help_record(context)))


def _items(items: Iterable[tuple[str, str]]) -> str:
    return "".join(f".TP\n\\fB{_escaped(name)}\\fR\n{_escaped(about)}\n" for name, about in items)


def _paragraphs(text: str | None) -> str:
    paragraphs = re.split(r"\n\s*\n", (text or "").strip())
    return "".join(f".PP\n{_escaped(' '.join(each.split()))}\n" for each in paragraphs)


def _escaped(text: str) -> str:
    """As roff reads it. Commands in backticks are bold."""
    safe = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq").replace("'", r"\(aq")
    safe = re.sub("`([^`]*)`", r"\\fB\1\\fR", safe)
    return rf"\&{safe}" if safe.startswith(".") else safe
