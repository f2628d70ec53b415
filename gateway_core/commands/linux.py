"""`gateway-core linux`: the core daemon of a Debian machine with real subscribers. `gateway-core setup`: the
check of such a machine, and its first configuration.

The setup also sets the address of the API, and changes nothing else.
"""

import json
import os
import re
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import click

from gateway_contract.base import durable
from gateway_contract.base.errors import GatewayApiError, Invalid
from gateway_contract.base.variables import CONFIGURATION, ETC, value
from gateway_core.commands.daemon import add_core_options, serve
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.assembly import LinuxMachine
from gateway_core.gateways.linux.daemons.daemon import SERVICES_FOLDER
from gateway_core.gateways.linux.daemons.frr import (
    FrrConfiguration,
    FrrFolders,
    find_foreign_bgp,
    mark_own_bgp,
)
from gateway_core.gateways.linux.daemons.subscriber_addresses import MAX_BLOCK_SIZE, SharedRange
from gateway_core.gateways.linux.health import (
    SOURCE_DAEMONS,
    choose_sources,
    find_missing_requirements,
    list_interfaces,
    map_types_to_sources,
)
from gateway_core.gateways.linux.program import CommitLimits

#: The file with which the unit of the core begins, and the users that gateway-api-setup made for it.
_FIRST_CONFIGURATION, _FIRST_USERS = ETC / "first-configuration.json", ETC / "first-users.json"
_FRR_FOLDERS = FrrFolders()
_FRR_TIMEOUT_SECONDS = 30.0

#: The option of each value that is the operator's, by the beginning of its path in the configuration.
_OPTIONS_BY_PATH = {
    "interfaces.trunks": "--trunk",
    "interfaces.uplinks": "--uplink",
    "cgnat.handoff_interface": "--uplink",
    "cgnat.source_range": "--range",
    "demux": "--trunk",
    "system.hostname": "the host name of this machine",
}
_VLAN_PROFILES = {
    "pppoe": {"vlan_range": "1000-3999", "overhead_profile": "pppoe_ethernet"},
    "dhcp": {"vlan_range": "100-999", "overhead_profile": "ipoe_ethernet"},
}

_SETTINGS_FILE, _BIND_VARIABLE, _ALL_ADDRESSES = ETC / "gateway-api.env", "GATEWAY_API_BIND", "all"

#: Shows a question, and returns the line that the operator types.
Ask = Callable[[str], str]


class CannotSetUp(GatewayApiError):
    """Failure of the setup. The text is the reason, for the operator."""


@dataclass(frozen=True)
class SetupOptions:
    """Options of the setup command. A missing option is empty; a missing `frr` is None."""

    trunk: Sequence[str]
    uplink: Sequence[str]
    source: Sequence[str]
    frr: str | None
    range: str
    api_address: str = ""


@click.command()
@click.option("--trunk", multiple=True, metavar="NAME", help="interface with VLANs of subscribers")
@click.option("--uplink", multiple=True, metavar="NAME", help="interface to the rest of the network")
@click.option(
    "--source", multiple=True, type=click.Choice(tuple(SOURCE_DAEMONS)),
    help="source of sessions; by default the installed ones",
)  # fmt: skip
@click.option(
    "--frr", type=click.Choice(("keep", "replace", "remove")),
    help="keep or replace a BGP instance of FRR that is not the gateway's, or remove the gateway's part",
)  # fmt: skip
@click.option("--range", default="", metavar="CIDR", help="addresses of subscribers")
@click.option(
    "--api-address", default="", metavar="ADDRESS",
    help=f"address at which the API listens, or {_ALL_ADDRESSES} for each address of the gateway",
)  # fmt: skip
def setup(**options: Any) -> int:
    """Checks this machine for a gateway on Linux, and writes its first configuration.

    On a terminal, it asks for the options that are missing.
    """
    try:
        ask = _ask if sys.stdin.isatty() else None
        is_ready = set_up(
            SetupOptions(**options), Path("/"), socket.gethostname(), ask, _find_management_address()
        )
    except (GatewayApiError, OSError) as error:
        sys.stderr.write(f"gateway-core setup: {error}\n")
        return 1
    except (EOFError, KeyboardInterrupt):
        sys.stderr.write("\ngateway-core setup: stopped before the end, and nothing is written\n")
        return 1
    return 0 if is_ready else 1


def set_up(
    options: SetupOptions, root: Path, hostname: str, ask: Ask | None, management: str | None = None
) -> bool:
    """Check the machine below `root`, and write its first configuration. Write nothing if there is a
    configuration already, or if the machine lacks a requirement. Return True if the gateway can start.

    `ask` is None without a terminal. `management` is the address that is proposed for the API. Raises
    GatewayApiError if an option is missing or invalid, and OSError if a file cannot be read or written.
    """
    if options.frr == "remove":
        _remove_from_frr(root)
        return True
    first, state = _join_root(root, _FIRST_CONFIGURATION), _join_root(root, CONFIGURATION / "state.json")
    exists = first.exists() or state.exists()
    if exists:
        ask = None
    options = _complete_options(options, root, ask, all_required=not exists)
    sources_by_type = map_types_to_sources(options.source)
    address = _choose_api_address(options.api_address, ask, management)
    text = "" if exists else _make_first_configuration(options, hostname, _join_root(root, _FIRST_USERS))
    for type in _VLAN_PROFILES:
        click.echo(f"Source of {type} sessions: {sources_by_type.get(type, 'none is installed or named')}")
    has_frr = _decide_on_frr(options.frr, root)
    missing = list(find_missing_requirements(root, [*options.trunk, *options.uplink], options.source))
    for requirement in missing:
        click.echo(f"missing {requirement.description}\n    {requirement.remedy}")
    if state.exists():
        click.echo(
            f"{state.parent} has a running configuration, which stays as it is. To change it, use "
            "`gatewayctl config` to set interfaces.trunks, interfaces.uplinks, demux.trunks and "
            "cgnat.source_range. To start anew, stop the core and move that folder away."
        )
    elif exists:
        click.echo(f"{first} exists, and stays as it is. To write another, remove it first.")
    elif not missing and has_frr:
        durable.replace(first, text.encode(), mode=0o644)
        click.echo(f"{first} is written.")
    if address is not None:
        _set_listen_address(address, _join_root(root, _SETTINGS_FILE), hostname)
    default = map_types_to_sources(choose_sources(root))
    if default_sources := {
        default[type] for type, name in sources_by_type.items() if default.get(type, name) != name
    }:
        option_list = " ".join(f"--source {name}" for name in options.source)
        click.echo(
            f"gateway-core linux takes {', '.join(default_sources)} unless its unit says {option_list}."
        )
    is_ready = has_frr and not missing
    click.echo("The gateway can start." if is_ready else "Something is missing: run this again afterwards.")
    return is_ready


def _find_management_address() -> str | None:
    """Return the address of this machine that the operator's SSH connection uses. Without SSH, return the
    address that the default route uses. Return None if there is no default route either."""
    if connection := os.environ.get("SSH_CONNECTION", "").split():
        return connection[2]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        # Nothing is sent to this address for documentation (RFC 5737).
        probe.connect(("192.0.2.1", 9))
        address: str = probe.getsockname()[0]
        return address
    return None


def _choose_api_address(address_text: str, ask: Ask | None, management: str | None) -> str | None:
    """Return the address at which the API listens, `_ALL_ADDRESSES` for all addresses, or None if the
    operator chooses no address. Raises CannotSetUp if the address is not an address of this machine."""
    if not address_text and ask is not None and management is not None:
        for_all = f"{_ALL_ADDRESSES} for each of the gateway"
        address_text = (
            ask(f"Address at which the API listens ({for_all}) [{management}]: ").strip() or management
        )
    if address_text in {"", _ALL_ADDRESSES}:
        return address_text or None
    try:
        family = socket.AF_INET6 if ip_address(address_text).version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.bind((address_text, 0))
    except (ValueError, OSError) as error:
        reason = f"must be {_ALL_ADDRESSES} or an address of this machine"
        raise CannotSetUp(f"--api-address: {reason}") from error
    return address_text


def _set_listen_address(address: str, settings: Path, hostname: str) -> None:
    """Set the address at which the API listens in the settings file, and keep the port. Raises OSError if the
    file cannot be read or written."""
    default = value({}, _BIND_VARIABLE)
    # A comment may have bytes of another character set.
    text = settings.read_bytes().decode(errors="surrogateescape") if settings.exists() else ""
    # Of several, systemd takes the last one. It ignores blanks and quotes (systemd.exec(5)).
    matches = list(re.finditer(rf"^[ \t]*{_BIND_VARIABLE}=(.*)$", text, re.MULTILINE))
    bind = (matches[-1][1].strip(" \t\"'") if matches else "") or default
    host, port = default.rpartition(":")[0], bind.rpartition(":")[2]
    if address != _ALL_ADDRESSES:
        host = f"[{address}]" if ":" in address else address
    line = f"{_BIND_VARIABLE}={host}:{port}"
    if line != f"{_BIND_VARIABLE}={bind}":
        place = matches[-1] if matches else re.search(rf"^#{_BIND_VARIABLE}=.*$", text, re.MULTILINE)
        if place:
            new_text = f"{text[: place.start()]}{line}{text[place.end() :]}"
        else:
            end = "\n" if text and not text.endswith("\n") else ""
            new_text = f"{text}{end}{line}\n"
        durable.replace(settings, new_text.encode(errors="surrogateescape"), mode=0o600)
        click.echo(f"{settings} has {line}. Then: systemctl restart gateway-api")
    if address != _ALL_ADDRESSES:
        click.echo(f"Log in at https://{hostname}:{port}, or by a certificate that has the address.")


def _read_frr(root: Path) -> tuple[FrrFolders, str]:
    """Return the folders of FRR, and the part of FRR's configuration that the gateway wrote last. Raises
    OSError if a file cannot be read."""
    folders = FrrFolders(
        *(_join_root(root, getattr(_FRR_FOLDERS, each.name)) for each in fields(_FRR_FOLDERS))
    )
    gateway_part = _join_root(root, SERVICES_FOLDER / "frr.conf")
    return folders, gateway_part.read_text(errors="replace") if gateway_part.exists() else ""


def _remove_from_frr(root: Path) -> None:
    """Remove the gateway's part from the configuration of a running FRR, until the core starts again. Raises
    GatewayApiError if FRR refuses the change, and OSError if a file cannot be read or written."""
    folders, gateway_part = _read_frr(root)
    limits = CommitLimits.of(_FRR_TIMEOUT_SECONDS, _FRR_TIMEOUT_SECONDS)
    changes = FrrConfiguration(folders, limits).apply("", gateway_part) if gateway_part else None
    click.echo("FRR has nothing of the gateway any more." if changes else "FRR had nothing of the gateway.")


def _decide_on_frr(decision: str | None, root: Path) -> bool:
    """Apply the operator's decision about a BGP instance in FRR that the gateway did not create. Return False
    if there is such an instance and the operator has made no decision. Raises OSError if a file cannot be
    read or written."""
    folders, gateway_part = _read_frr(root)
    lines = find_foreign_bgp(folders, gateway_part)
    click.echo("In FRR, the gateway changes its BGP instance, and what is named gateway-. All else stays.")
    if not lines:
        return True
    shown = "".join(f"\n    {line}" for line in lines)
    match decision:
        case "replace":
            copy, has_mark = mark_own_bgp(folders)
            when = "" if has_mark else ", when FRR runs"
            click.echo(
                "BGP is the gateway's. With the first configuration that has the section bgp"
                f"{when}, FRR loses these lines, which {copy} keeps:{shown}"
            )
        case "keep":
            click.echo(
                "FRR keeps its BGP instance: the gateway refuses a configuration with the section bgp. These "
                f"lines are not the gateway's:{shown}"
            )
        case _:
            click.echo(
                "FRR has a BGP instance that is not the gateway's. A configuration with the section bgp "
                f"would replace it, and these lines would go:{shown}\n  Decide, and run this again:\n"
                "    --frr replace    gives BGP to the gateway, and keeps a copy of the configuration\n"
                "    --frr keep       FRR keeps its BGP instance, and the gateway has no BGP"
            )
            return False
    return True


def _complete_options(
    options: SetupOptions, root: Path, ask: Ask | None, *, all_required: bool
) -> SetupOptions:
    """Return the options, with the operator's answers in place of missing options. If no sources are given,
    use the sources that `gateway-core linux` uses by default. Without `all_required`, only the sources are
    required. Raises CannotSetUp if a required option is missing without a terminal, or if a source is
    unknown."""
    names = ", ".join(list_interfaces(root))
    questions = {
        "source": f"Sources of sessions ({', '.join(SOURCE_DAEMONS)}): ",
        "trunk": f"Trunks, which carry the VLANs of subscribers ({names}): ",
        "uplink": f"Uplinks, which lead to the rest of the network ({names}): ",
        "range": "Addresses of subscribers, such as 100.64.0.0/10: ",
    }
    options = replace(options, source=tuple(options.source or choose_sources(root)))
    missing_names = [
        name for name in questions if not getattr(options, name) and (all_required or name == "source")
    ]
    if missing_names and ask is None:
        option_list = ", ".join(f"--{name}" for name in missing_names)
        raise CannotSetUp(f"{option_list}: required without a terminal")
    answers: dict[str, Any] = {}
    for name in missing_names:
        words: list[str] = []
        while ask is not None and not words:
            words = ask(questions[name]).replace(",", " ").split()
        answers[name] = " ".join(words) if name == "range" else tuple(words)
    options = replace(options, **answers)
    if unknown := set(options.source) - SOURCE_DAEMONS.keys():
        raise CannotSetUp(f"--source: {min(unknown)!r} is none of {', '.join(SOURCE_DAEMONS)}")
    return options


def _make_first_configuration(options: SetupOptions, hostname: str, users: Path) -> str:
    """Return the first configuration as a JSON document. The document is checked together with the first
    users, which are in the file `users`. Raises CannotSetUp if the file `users` is missing or an option is
    not valid, and Unreadable if the file cannot be read."""
    if not users.exists():
        raise CannotSetUp(f"the first user of the API is missing in {users}: run gateway-api-setup")
    trunks, uplinks = list(options.trunk), list(options.uplink)
    sources_by_type = map_types_to_sources(options.source)
    document: dict[str, Any] = {
        "system": {"hostname": hostname},
        "interfaces": {"trunks": trunks, "uplinks": uplinks},
        "radius": {"server": None, "secret": None},
        "cgnat": {
            "enabled": False,
            "vrf_name": "cgnat",
            "vrf_table": 100,
            "handoff_interface": uplinks[0],
            # No gateway has an address for documentation (RFC 5737): the operator sets it before `enabled`.
            "handoff_gateway": "192.0.2.1",
            "source_range": options.range,
        },
        "qos": {"default_down": "100mbit", "default_up": "20mbit"},
        "demux": {
            "trunks": trunks,
            "vlan_profiles": [
                {"name": type, "type": type, "outer_vlan_range": None, **profile}
                for type, profile in _VLAN_PROFILES.items()
                if type in sources_by_type
            ],
            # A VLAN with pppoe-server costs a process, so a flood must not get thousands.
            "rate_limits": {"vlans_per_second": 20, "burst": 200, "max_vlans": 1000},
            "idle_timeout": 300,
        },
        "bgp": None,
        "api": {"enabled": True, "token_lifetime": 3600, "users": []},
    }
    try:
        first_configuration = RunningConfiguration.make_first(document, users)
    except Invalid as error:
        broken_rules = (f"{_find_option(problem.path)}: {problem.message}" for problem in error.problems)
        raise CannotSetUp("; ".join(dict.fromkeys(broken_rules))) from error
    if sources_by_type.get("pppoe") == "pppoe-server" and not SharedRange.of(
        first_configuration.sections
    ).find_free_block(()):
        raise CannotSetUp(
            f"--range: too small: pppoe-server has {MAX_BLOCK_SIZE} addresses of it for each VLAN"
        )
    return json.dumps(document, indent=2) + "\n"


def _find_option(path: str) -> str:
    """Return the option of the setup command that sets a path of the configuration. Return the path itself if
    no option sets the path."""
    return next((option for start, option in _OPTIONS_BY_PATH.items() if path.startswith(start)), path)


def _join_root(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _ask(question: str) -> str:
    # Not by `input`: a Ctrl-C right after its question takes effect only after a line.
    sys.stdout.write(question)
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


@click.command()
@add_core_options
@click.option(
    "--source", "sources", multiple=True, type=click.Choice(tuple(SOURCE_DAEMONS)),
    help="source of sessions, repeatable; by default accel-ppp or else the daemons of Debian, if installed",
)  # fmt: skip
def linux(sources: Sequence[str], **options: Any) -> int:
    """Serves real subscribers of this machine, until SIGTERM or SIGINT."""
    try:
        machine = LinuxMachine(sources or choose_sources(Path("/")))
    except GatewayApiError as error:
        sys.stderr.write(f"gateway-core linux: {error}\n")
        return 1

    return serve(machine.services, machine.make_gateway, **options)
