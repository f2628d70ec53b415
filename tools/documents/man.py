"""The man pages (man(7)): of each program of a service, of each command of gatewayctl of the first level, and
of what those share, from the same trees of commands as `--help`; and of the environment."""

import re
from collections.abc import Container, Iterable, Iterator, Sequence

import click

from gateway_api.cli.api import api
from gateway_contract.base.variables import GROUPS
from gateway_contract.program import Group, summarize
from gateway_contract.version import PRODUCT, VERSION
from gateway_core.__main__ import core
from gatewayctl.__main__ import gatewayctl
from gatewayctl.errors import ExitStatus

_ENV_FILE = "/etc/gateway-api/gateway-api.env"

_API = """
The API of a subscriber gateway is served by gateway-api.service. It takes its settings from
gateway-api.env(5), and calls the core daemon, gateway-core(8), at a Unix socket. This command is for its
operator.

`rescue` is for root on the gateway, when the API is disabled, a password is lost or a commit was a
mistake. It calls the core itself: it needs neither the API nor a password.
"""
_CORE = """
The core daemon of a subscriber gateway owns the sessions and the configuration, and serves
org.gatewayapi.core at a Unix socket. gateway-core-linux.service runs it with real subscribers,
gateway-core-lab.service with simulated ones. Enable one of them.

Run `gateway-core setup` before the first start of gateway-core-linux.service.

Any other daemon that serves the interface can be the core. `gateway-core check` says what one lacks.
"""
_API_FILES = (
    (_ENV_FILE, "the settings: gateway-api.env(5)."),
    ("/etc/gateway-api/tls/", "the certificate and its key."),
    ("/etc/gateway-api/secret", "signs the tokens."),
    ("/var/lib/gateway-api/", "revoked tokens, the history of sessions, the audit log."),
)
_CORE_FILES = (
    ("/etc/gateway-api/first-configuration.json", "the first configuration with real subscribers."),
    ("/etc/gateway-api/factory.json", "the first configuration of the lab."),
    ("/etc/gateway-api/first-users.json", "the first users, if the first configuration has none."),
    ("/var/lib/gateway-core/configuration/", "the running configuration and the archive."),
    ("/run/gateway-core/core.sock", "the socket."),
)
_STATUSES = (
    ("0", "success."),
    ("1", "failure: a sentence on standard error has the reason."),
    ("2", "wrong arguments."),
)
#: Commands of a unit, which nobody types.
_OF_UNITS = frozenset({"join-certificate"})

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


def pages() -> dict[str, str]:
    """The text of each page by the name of its file."""
    return {
        "gateway-api.8": "".join(_of_api()),
        "gateway-core.8": "".join(_of_core()),
        "gateway-api.env.5": "".join(_of_environment()),
        **of_gatewayctl(gatewayctl),
    }


def of_gatewayctl(root: click.Group) -> dict[str, str]:
    """The pages of gatewayctl and of its commands."""
    made = {f"{_PROGRAM}.1": "".join(_of_gatewayctl(root))}
    for name, command in root.commands.items():
        made[f"{_PROGRAM}-{name}.1"] = "".join(_of_command(f"{_PROGRAM} {name}", command))
    return made


def _of_api() -> Iterator[str]:
    name = "gateway-api"
    yield _head(name, 8) + _named(name, "Tools for the operation of the gateway's API")
    yield from _of_program(name, _API, api, _API_FILES)
    yield _see_also(("gatewayctl", 1), ("gateway-api.env", 5), ("gateway-core", 8))


def _of_core() -> Iterator[str]:
    name = "gateway-core"
    yield _head(name, 8) + _named(name, "The core daemon of the gateway")
    yield from _of_program(name, _CORE, core, _CORE_FILES)
    yield _see_also(("gateway-api", 8), ("gateway-api.env", 5))


def _of_program(name: str, description: str, root: Group, files: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield f".SH SYNOPSIS\n\\fB{_escaped(name)}\\fR COMMAND [OPTIONS]\n"
    yield ".SH DESCRIPTION\n" + _paragraphs(description)
    yield ".SH COMMANDS\n"
    for path, command in _commands(root):
        yield f".SS {_escaped(f'{path} {_pieces(command)}'.strip())}\n"
        yield _paragraphs(command.help) + _options(command)
    yield ".SH FILES\n" + _items(files)
    yield ".SH EXIT STATUS\n" + _items(_STATUSES)


def _commands(group: Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """The commands of a program and of its groups, by their words."""
    for name, command in ((name, group.commands[name]) for _, names in group.sections() for name in names):
        if isinstance(command, Group):
            yield from _commands(command, f"{path}{name} ")
        elif name not in _OF_UNITS:
            yield path + name, command


def _of_environment() -> Iterator[str]:
    name = "gateway-api.env"
    yield _head(name, 5) + _named(name, "Settings of the gateway's services")
    yield f".SH SYNOPSIS\n\\fB{_escaped(_ENV_FILE)}\\fR\n"
    yield ".SH DESCRIPTION\n" + _paragraphs("""
        Environment variables, one NAME=VALUE a line, which systemd reads at the start of
        gateway-api.service, gateway-api-token.service and the core. A change takes effect with `systemctl
        restart`.

        An unknown variable that begins with GATEWAY_API_ stops the start. The error names it and the
        nearest known one.
    """)
    for title, variables in GROUPS.items():
        yield f".SH {_escaped(title.upper())}\n"
        yield _items(
            (each.name, each.meaning + (f" Default: {each.default}" if each.default else ""))
            for each in variables
        )
    yield _see_also(("gateway-api", 8), ("gateway-core", 8), ("systemd.exec", 5))


def _of_gatewayctl(root: click.Group) -> Iterator[str]:
    yield _head(_PROGRAM, 1)
    yield _named(_PROGRAM, summarize(root))
    yield _synopsis(_PROGRAM, root)
    yield ".SH DESCRIPTION\n" + _paragraphs(root.help)
    yield ".SH OPTIONS\n" + _options(root)
    yield ".SH COMMANDS\n"
    yield _items((f"{_PROGRAM}-{name}(1)", summarize(command)) for name, command in root.commands.items())
    for title, entries in (("OUTPUT", _FORMATS), ("ENVIRONMENT", ENVIRONMENT), ("FILES", _FILES)):
        yield f".SH {title}\n" + _items((name, f"{about}.") for name, about in entries)
    yield ".SH EXIT STATUS\n"
    yield _items((str(int(status)), f"{status.meaning}.") for status in ExitStatus)
    yield "With --all, it is the highest of all gateways.\n".replace("-", r"\-")


def _of_command(path: str, command: click.Command) -> Iterator[str]:
    yield _head(path.replace(" ", "-"), 1)
    yield _named(path.replace(" ", "-"), summarize(command))
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


def _synopsis(path: str, command: click.Command) -> str:
    return f".SH SYNOPSIS\n\\fB{_escaped(path)}\\fR {_escaped(_pieces(command))}\n"


def _pieces(command: click.Command) -> str:
    """The words of its usage: `[OPTIONS] TARGET`."""
    return " ".join(command.collect_usage_pieces(click.Context(command)))


def _options(command: click.Command, but: Container[str] = ()) -> str:
    context = click.Context(command)
    options = [each for each in command.params if isinstance(each, click.Option) and each.name not in but]
    return _items(record for each in options if (record := each.get_help_record(context)))


# man(7)


def _head(name: str, section: int) -> str:
    return f'.TH "{_escaped(name.upper())}" {section} "" "gateway-api {VERSION}" "{PRODUCT}"\n'


def _named(name: str, summary: str) -> str:
    """The section NAME, by which apropos(1) finds the page."""
    return f".SH NAME\n{_escaped(name)} \\- {_escaped(summary.rstrip('.'))}\n"


def _items(items: Iterable[tuple[str, str]]) -> str:
    return "".join(f".TP\n\\fB{_escaped(name)}\\fR\n{_escaped(about)}\n" for name, about in items)


def _paragraphs(text: str | None) -> str:
    each = re.split(r"\n\s*\n", (text or "").strip())
    return "".join(f".PP\n{_escaped(' '.join(one.split()))}\n" for one in each)


def _see_also(*pages: tuple[str, int]) -> str:
    """`pages` are names with their sections."""
    return (
        ".SH SEE ALSO\n" + " ,\n".join(f".BR {_escaped(name)} ({section})" for name, section in pages) + "\n"
    )


def _escaped(text: str) -> str:
    """As roff reads it. Commands in backticks are bold."""
    safe = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq").replace("'", r"\(aq")
    safe = re.sub("`([^`]*)`", r"\\fB\1\\fR", safe)
    return rf"\&{safe}" if safe.startswith(".") else safe
