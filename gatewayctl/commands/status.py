"""The state of a gateway on one screen; its health and version, which require no token."""

from collections.abc import Callable
from typing import Any

import click

from gatewayctl.client.errors import ClientError
from gatewayctl.client.gateway import Record, RemoteGateway
from gatewayctl.command import command
from gatewayctl.failures import ExitStatus
from gatewayctl.invocation import reads
from gatewayctl.results import Importance, ResultList, Sheet, ShownColumn, WholeRecord
from gatewayctl.texts import NOTHING, moment, plain

#: States of dependencies that need nobody.
_WELL = {"ok", "unused", "unknown"}
_DEPENDENCIES = (
    ShownColumn("name", "Dependency", importance=Importance.IDENTITY),
    ShownColumn("state", importance=Importance.IDENTITY),
    ShownColumn("message", importance=Importance.IDENTITY, wraps=True),
)


def is_well(dependency: Record) -> bool:
    """Whether its state needs nobody."""
    return dependency["state"] in _WELL


@command()
@reads
@click.option("--detail", is_flag=True, help="Lists what the gateway depends on, each with a sentence.")
def health(gateway: RemoteGateway, detail: bool) -> Sheet | ResultList:
    """Shows whether the gateway and its core respond, and the sources of sessions that do not.

    Exit status 1 while a source of sessions does not respond or, with --detail, a dependency is degraded or
    has failed. Only --detail requires a login.
    """
    if detail:
        dependencies = gateway.get("/system/health/detail")["dependencies"]
        well = all(map(is_well, dependencies))
        return ResultList(dependencies, _DEPENDENCIES, ExitStatus.DONE if well else ExitStatus.REFUSED)
    found = gateway.get("/system/health")
    status = ExitStatus.REFUSED if found["unavailable_sources"] else ExitStatus.DONE
    return Sheet(found, status)


@command()
@reads
def version(gateway: RemoteGateway) -> Sheet:
    """Shows the version of the gateway; `gatewayctl --version` shows that of this command."""
    return Sheet(gateway.get("/system/version"))


#: Dependencies that are described; further ones are named, so that all has room on a screen.
_DESCRIBED = 2


def _dependencies(record: Record) -> str:
    dependencies = record["dependencies"]
    if dependencies is None:
        return NOTHING
    ill = [each for each in dependencies if not is_well(each)]
    ill.sort(key=lambda each: bool(each["state"] != "failed"))
    if not ill:
        return "all are well"
    said = [f"{each['name']} {each['state']}: {each['message']}" for each in ill[:_DESCRIBED]]
    more = ", ".join(each["name"] for each in ill[_DESCRIBED:])
    return plain(" ".join([*said, *([f"Not well either: {more}."] if more else [])]))


def _sessions(record: Record) -> str:
    return f"{record['total']}: {record['pppoe']} PPPoE, {record['dhcp']} DHCP"


def _candidate(record: Record) -> str:
    if record["is_staged"] is None:
        return NOTHING
    said = ["has changes that are not committed"] if record["is_staged"] else []
    if deadline := record["confirm_deadline"]:
        said.append(f"the last commit must be confirmed until {moment(deadline)}")
    return "; ".join(said) or "no changes"


_COLUMNS = (
    ShownColumn("url", "Gateway", wraps=True),
    ShownColumn("version"),
    ShownColumn("uptime_seconds"),
    WholeRecord("dependencies", value=_dependencies, wraps=True),
    WholeRecord("total", "Sessions", _sessions, wraps=True),
    ShownColumn("stale_sessions"),
    ShownColumn("vrf_steered_sessions", "Steered to CGNAT"),
    ShownColumn("down_bps"),
    ShownColumn("up_bps"),
    ShownColumn("faults"),
    WholeRecord("is_staged", "Candidate", _candidate, wraps=True),
)
_UNAVAILABLE = ShownColumn("unavailable", wraps=True)

#: What the status has of each path, as fields of its own.
_PARTS: dict[str, Callable[[Any], Record]] = {
    "/system/health/detail": lambda found: {"dependencies": found["dependencies"]},
    "/cgnat/stats": lambda found: {"vrf_steered_sessions": found["vrf_steered_sessions"]},
    "/interfaces/traffic": lambda found: {
        name: found["samples"][-1][name] if found["samples"] else None for name in ("down_bps", "up_bps")
    },
    "/system/faults?limit=1": lambda found: {"faults": found["total"]},
    "/system/config/compare": lambda found: {
        "is_staged": bool(found["diff"]), "confirm_deadline": found["confirm_deadline"],
    },
}  # fmt: skip
_FIELDS = (
    "dependencies", "vrf_steered_sessions", "down_bps", "up_bps", "faults", "is_staged", "confirm_deadline",
)  # fmt: skip


@command()
@reads
def status(gateway: RemoteGateway) -> Sheet:
    """Shows the state of the gateway on one screen: dependencies, sessions, traffic, faults, candidate.

    Only an admin sees the state of the candidate. Exit status 1 while a source of sessions does not respond
    or a dependency is degraded or has failed.
    """
    health = gateway.get("/system/health")
    record: Record = {"url": gateway.context.url, **health, **gateway.get("/subscribers/summary")}
    record |= dict.fromkeys(_FIELDS) | {"unavailable": []}
    for path, fields in _PARTS.items():
        try:
            record |= fields(gateway.get(path))
        except ClientError as failure:
            # The rest is the more important then.
            record["unavailable"].append(f"{path}: {failure.lines[0]}")
    well = record["dependencies"] is not None and all(map(is_well, record["dependencies"]))
    done = ExitStatus.DONE if well and not health["unavailable_sources"] else ExitStatus.REFUSED
    return Sheet(record, done, (*_COLUMNS, *([_UNAVAILABLE] if record["unavailable"] else [])))
