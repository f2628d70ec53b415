"""The man pages of the services' commands and of their environment. Those of gatewayctl are in `ctl.man`."""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout, suppress

from gateway_api.base.variables import GROUPS
from gateway_api.cli import api
from gateway_api.cli.core import __main__ as core
from gateway_api.cli.roff import escaped, head, items, named, paragraphs, see_also, verbatim

#: As wide as a page of man(1) on a terminal of 80 columns, without its margin.
_WIDTH = "72"
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


def pages() -> dict[str, str]:
    """The text of each page by the name of its file."""
    return {
        "gateway-api.8": "".join(_of_api()),
        "gateway-core.8": "".join(_of_core()),
        "gateway-api.env.5": "".join(_of_environment()),
    }


def _of_api() -> Iterator[str]:
    name = "gateway-api"
    commands = (
        ("hash-password",),
        ("routes",),
        ("rescue", "enable"),
        ("rescue", "password"),
        ("rescue", "undo"),
    )
    yield head(name, 8) + named(name, "Tools for the operation of the gateway's API")
    yield from _of_program(name, _API, api.main, commands, _API_FILES)
    yield see_also(("gatewayctl", 1), ("gateway-api.env", 5), ("gateway-core", 8))


def _of_core() -> Iterator[str]:
    name = "gateway-core"
    yield head(name, 8) + named(name, "The core daemon of the gateway")
    yield from _of_program(
        name, _CORE, core.main, (("setup",), ("linux",), ("lab",), ("check",)), _CORE_FILES
    )
    yield see_also(("gateway-api", 8), ("gateway-api.env", 5))


def _of_program(
    name: str,
    description: str,
    main: Callable[[Sequence[str]], int],
    commands: Sequence[tuple[str, ...]],
    files: Sequence[tuple[str, str]],
) -> Iterator[str]:
    yield f".SH SYNOPSIS\n\\fB{escaped(name)}\\fR COMMAND [OPTIONS]\n"
    yield ".SH DESCRIPTION\n" + paragraphs(description)
    yield ".SH COMMANDS\n"
    for words in commands:
        yield f".SS {escaped(' '.join(words))}\n" + verbatim(_help(main, words))
    yield ".SH FILES\n" + items(files)
    yield ".SH EXIT STATUS\n" + items(_STATUSES)


def _of_environment() -> Iterator[str]:
    name = "gateway-api.env"
    yield head(name, 5) + named(name, "Settings of the gateway's services")
    yield f".SH SYNOPSIS\n\\fB{escaped(_ENV_FILE)}\\fR\n"
    yield ".SH DESCRIPTION\n" + paragraphs("""
        Environment variables, one NAME=VALUE a line, which systemd reads at the start of
        gateway-api.service, gateway-api-token.service and the core. A change takes effect with `systemctl
        restart`.

        An unknown variable that begins with GATEWAY_API_ stops the start. The error names it and the
        nearest known one.
    """)
    for title, variables in GROUPS.items():
        yield f".SH {escaped(title.upper())}\n"
        yield items(
            (each.name, each.meaning + (f" Default: {each.default}" if each.default else ""))
            for each in variables
        )
    yield see_also(("gateway-api", 8), ("gateway-core", 8), ("systemd.exec", 5))


def _help(main: Callable[[Sequence[str]], int], words: Sequence[str]) -> str:
    """The text that a command prints for --help."""
    printed, former = io.StringIO(), os.environ.get("COLUMNS")
    # argparse wraps its lines as a terminal does, and has no other way in.
    os.environ["COLUMNS"] = _WIDTH
    try:
        with redirect_stdout(printed), suppress(SystemExit):
            main([*words, "--help"])
    finally:
        if former is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = former
    return printed.getvalue()
