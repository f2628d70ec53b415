"""The man pages (man(7)), from the same tree of commands as `--help`: one page for each command of the first
level, and `gatewayctl(1)` for what they share."""

from collections.abc import Container, Iterator

import click

from gateway_api.cli.ctl.failures import MEANINGS
from gateway_api.cli.roff import escaped, head, items, named, paragraphs

_PROGRAM = "gatewayctl"
#: Options that almost every command has: they are in the page of the program.
_SHARED = frozenset({"context", "all", "output", "columns"})

_FORMATS = (
    (
        "table",
        "for people, the default: the most important fields of each record. On a terminal, columns that do "
        "not fit are left out, and standard error names them; if not even names and ids fit, the records "
        "stand one under the other. No value is cut. --columns chooses columns, by their heads or fields",
    ),
    ("wide", "a table with all its columns, however wide the terminal is"),
    ("json", "the records of the API with all fields: a list, or one record"),
    ("csv", "RFC 4180 with a line of names; fields that are lists or objects are JSON"),
    (
        "jsonpath=EXPRESSION",
        "what an expression (RFC 9535) selects from the JSON, one value per line: '$[*].username'",
    ),
)
ENVIRONMENT = (
    ("GATEWAY_URL, GATEWAY_CA", "the gateway and its CA certificate; --context wins over them"),
    (
        "GATEWAY_USER, GATEWAY_PASSWORD_FILE",
        "commands log in by themselves, also after the token has expired",
    ),
    ("GATEWAY_CORE_SOCKET", "the core's socket, for gatewayctl-rescue(1)"),
    ("NO_COLOR", "if it is set, the output has no color; only a terminal has any"),
    ("VISUAL, EDITOR", "the editor of config edit"),
)
_FILES = (
    ("~/.config/gatewayctl/contexts.json", "the contexts with their tokens, in XDG_CONFIG_HOME if it is set"),
    ("~/.local/state/gatewayctl", "the undo files of changed rates, in XDG_STATE_HOME if it is set"),
)


def pages(root: click.Group) -> dict[str, str]:
    """The text of each page by the name of its file."""
    made = {f"{_PROGRAM}.1": "".join(_of_program(root))}
    for name, command in root.commands.items():
        made[f"{_PROGRAM}-{name}.1"] = "".join(_of_command(f"{_PROGRAM} {name}", command))
    return made


def _of_program(root: click.Group) -> Iterator[str]:
    yield head(_PROGRAM, 1)
    yield named(_PROGRAM, _summary(root))
    yield _synopsis(_PROGRAM, root)
    yield ".SH DESCRIPTION\n" + paragraphs(root.help)
    yield ".SH OPTIONS\n" + _options(root)
    yield ".SH COMMANDS\n"
    yield items((f"{_PROGRAM}-{name}(1)", _summary(command)) for name, command in root.commands.items())
    for title, entries in (("OUTPUT", _FORMATS), ("ENVIRONMENT", ENVIRONMENT), ("FILES", _FILES)):
        yield f".SH {title}\n" + items((name, f"{about}.") for name, about in entries)
    yield ".SH EXIT STATUS\n"
    yield items((str(int(status)), f"{about}.") for status, about in MEANINGS.items())
    yield "With --all, it is the highest of all gateways.\n".replace("-", r"\-")


def _of_command(path: str, command: click.Command) -> Iterator[str]:
    yield head(path.replace(" ", "-"), 1)
    yield named(path.replace(" ", "-"), _summary(command))
    yield _synopsis(path, command)
    yield ".SH DESCRIPTION\n" + paragraphs(command.help)
    if isinstance(command, click.Group):
        yield ".SH COMMANDS\n"
        for name, inner in command.commands.items():
            yield f".SS {escaped(f'{name} {_pieces(inner)}'.strip())}\n"
            yield paragraphs(inner.help) + _options(inner, _SHARED)
    elif options := _options(command, _SHARED):
        yield f".SH OPTIONS\n{options}"
    yield f".SH SEE ALSO\n.BR {_PROGRAM} (1)\nhas the options of all commands, and the exit statuses.\n"


def _synopsis(path: str, command: click.Command) -> str:
    return f".SH SYNOPSIS\n\\fB{escaped(path)}\\fR {escaped(_pieces(command))}\n"


def _pieces(command: click.Command) -> str:
    """The words of its usage: `[OPTIONS] TARGET`."""
    return " ".join(command.collect_usage_pieces(click.Context(command)))


def _summary(command: click.Command) -> str:
    return command.get_short_help_str(limit=1000)


def _options(command: click.Command, but: Container[str] = ()) -> str:
    context = click.Context(command)
    options = [each for each in command.params if isinstance(each, click.Option) and each.name not in but]
    return items(record for each in options if (record := each.get_help_record(context)))
