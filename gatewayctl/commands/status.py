"""Commands that show the state of a gateway on one screen, its health and its version. Health and version
need no token."""

from collections.abc import Callable
from typing import Any

import click

from gateway_client.errors import ClientError, ExitStatus
from gateway_client.gateway import Record, RemoteGateway
from gatewayctl import cli
from gatewayctl.results import IDENTITY, Column, ResultList, Sheet
from gatewayctl.texts import NOTHING, format_time, format_value

#: States of dependencies that require no action.
_GOOD_STATES = {"ok", "unused", "unknown"}
_DEPENDENCY_COLUMNS = (
    Column("name", IDENTITY, "Dependency"),
    Column("state", IDENTITY),
    Column("message", IDENTITY, can_wrap=True),
)


def is_healthy(dependency: Record) -> bool:
    """Return True if the state of a dependency requires no action."""
    return dependency["state"] in _GOOD_STATES


@cli.command()
@click.option("--detail", is_flag=True, help="List what the gateway depends on, each with a sentence.")
@cli.read_command
def health(gateway: RemoteGateway, detail: bool) -> Sheet | ResultList:
    """Show whether the gateway and its core respond, and which sources of sessions do not respond.

    Exit status 1 while a source of sessions does not respond or, with --detail, a dependency is degraded or
    has failed. Only --detail requires a login.
    """
    if detail:
        dependencies = gateway.get("/system/health/detail")["dependencies"]
        is_good = all(map(is_healthy, dependencies))
        return ResultList(dependencies, _DEPENDENCY_COLUMNS, _get_exit_status(is_good))
    record = gateway.get("/system/health")
    return Sheet(record, _get_exit_status(not record["unavailable_sources"]))


def _get_exit_status(is_good: bool) -> ExitStatus:
    return ExitStatus.SUCCESS if is_good else ExitStatus.REFUSED


@cli.command()
@cli.read_command
def version(gateway: RemoteGateway) -> Sheet:
    """Show the version of the gateway; `gatewayctl --version` shows the version of gatewayctl."""
    return Sheet(gateway.get("/system/version"))


#: Number of dependencies that are described; further dependencies are only named, to save space.
_MAX_DESCRIBED_DEPENDENCIES = 2


def _describe_dependencies(record: Record) -> str:
    dependencies = record["dependencies"]
    if dependencies is None:
        return NOTHING
    ill = [each for each in dependencies if not is_healthy(each)]
    ill.sort(key=lambda each: bool(each["state"] != "failed"))
    if not ill:
        return "all are well"
    sentences = [
        f"{each['name']} {each['state']}: {each['message']}" for each in ill[:_MAX_DESCRIBED_DEPENDENCIES]
    ]
    if others := ", ".join(each["name"] for each in ill[_MAX_DESCRIBED_DEPENDENCIES:]):
        sentences.append(f"Not well either: {others}.")
    return format_value(" ".join(sentences))


def _describe_sessions(record: Record) -> str:
    return f"{record['total']}: {record['pppoe']} PPPoE, {record['dhcp']} DHCP"


def _describe_candidate(record: Record) -> str:
    if record["is_staged"] is None:
        return NOTHING
    parts = ["has changes that are not committed"] if record["is_staged"] else []
    if deadline := record["confirm_deadline"]:
        parts.append(f"the last commit must be confirmed until {format_time(deadline)}")
    return "; ".join(parts) or "no changes"


_STATUS_COLUMNS = (
    Column("url", title="Gateway", can_wrap=True), Column("version"), Column("uptime_seconds"),
    Column("dependencies", value=_describe_dependencies, can_wrap=True),
    Column("total", title="Sessions", value=_describe_sessions, can_wrap=True), Column("stale_sessions"),
    Column("vrf_steered_sessions", title="Steered to CGNAT"), Column("down_bps"), Column("up_bps"),
    Column("faults"), Column("is_staged", title="Candidate", value=_describe_candidate, can_wrap=True),
)  # fmt: skip
_UNAVAILABLE_COLUMN = Column("unavailable", can_wrap=True)

#: Functions that return the fields of the status from the response of a path.
_STATUS_PARTS: dict[str, Callable[[Any], Record]] = {
    "/system/health/detail": lambda data: {"dependencies": data["dependencies"]},
    "/cgnat/stats": lambda data: {"vrf_steered_sessions": data["vrf_steered_sessions"]},
    "/interfaces/traffic": lambda data: {
        name: data["samples"][-1][name] if data["samples"] else None for name in ("down_bps", "up_bps")
    },
    "/system/faults?limit=1": lambda data: {"faults": data["total"]},
    "/system/config/compare": lambda data: {
        "is_staged": bool(data["diff"]), "confirm_deadline": data["confirm_deadline"],
    },
}  # fmt: skip
_STATUS_FIELDS = (
    "dependencies", "vrf_steered_sessions", "down_bps", "up_bps", "faults", "is_staged", "confirm_deadline",
)  # fmt: skip


@cli.command()
@cli.read_command
def status(gateway: RemoteGateway) -> Sheet:
    """Show the state of the gateway on one screen: dependencies, sessions, traffic, faults, candidate.

    Only an admin sees the state of the candidate. Exit status 1 while a source of sessions does not respond
    or a dependency is degraded or has failed.
    """
    health = gateway.get("/system/health")
    record: Record = {"url": gateway.context.url, **health, **gateway.get("/subscribers/summary")}
    record |= dict.fromkeys(_STATUS_FIELDS) | {"unavailable": []}
    for path, get_fields in _STATUS_PARTS.items():
        try:
            record |= get_fields(gateway.get(path))
        except ClientError as error:
            # If a part is unavailable, the other parts are still shown.
            record["unavailable"].append(f"{path}: {error.lines[0]}")
    is_good = record["dependencies"] is not None and all(map(is_healthy, record["dependencies"]))
    columns = (*_STATUS_COLUMNS, _UNAVAILABLE_COLUMN) if record["unavailable"] else _STATUS_COLUMNS
    return Sheet(record, _get_exit_status(is_good and not health["unavailable_sources"]), columns)
