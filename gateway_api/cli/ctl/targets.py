"""A session as the user names it: by its id, or by the whole username, MAC or IP address."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import click
from click.shell_completion import CompletionItem

from gateway_api.base.texts import ip_address, mac_address
from gateway_api.cli.ctl.completion import offered
from gateway_api.cli.ctl.failures import CommandFailure, ExitStatus
from gateway_api.cli.ctl.texts import line
from gateway_api.client.gateway import Record, RemoteGateway

_ID = re.compile("[1-9][0-9]*", re.ASCII)
#: Ids that a completion offers.
_MOST_OFFERED = 1000


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def session_path(id: object) -> str:
    return f"/subscribers/{quote(str(id), safe='')}"


def session_id(gateway: RemoteGateway, target: str) -> int:
    """The id of the only session that a target names. Raises ClientError."""
    if is_id(target):
        return int(target)
    found = gateway.pages("/subscribers", "sessions", exactly(target))
    if not found:
        raise CommandFailure(
            ExitStatus.REFUSED,
            f"no session of {line(target)}; gatewayctl subscribers find searches for parts",
        )
    if len(found) > 1:
        ids = ", ".join(str(each["id"]) for each in found)
        raise CommandFailure(
            ExitStatus.REFUSED, f"{line(target)} has several sessions: name one by its id: {ids}"
        )
    return int(found[0]["id"])


def last_session_id(gateway: RemoteGateway, target: str) -> int:
    """The id of the last session that a target had, also of one that has ended. Raises ClientError."""
    if is_id(target):
        return int(target)
    found = gateway.pages("/subscribers/history", "sessions", exactly(target), 1)
    if not found:
        raise CommandFailure(ExitStatus.REFUSED, f"the history has no session of {line(target)}")
    return int(found[0]["id"])


def exactly(target: str) -> Record:
    """The filter of the API for a target."""
    readers: dict[str, Callable[[str], str]] = {"ip_address": ip_address, "mac_address": mac_address}
    for name, read in readers.items():
        try:
            return {name: read(target)}
        except ValueError:
            continue
    return {"username": target}


class TargetType(click.ParamType[str]):
    """A target; completed with the ids and usernames of real sessions."""

    name = "target"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return offered(ctx, _sessions, incomplete)


def _sessions(gateway: RemoteGateway, incomplete: str) -> list[tuple[str, str]]:
    by_id = not incomplete or incomplete.isdecimal()
    query: dict[str, Any] = {} if by_id else {"search": incomplete}
    found = gateway.get("/subscribers", **query, limit=_MOST_OFFERED)["sessions"]
    if by_id:
        return [(str(each["id"]), each["username"] or each["mac_address"] or "") for each in found]
    return [(each["username"], f"session {each['id']}") for each in found if each["username"]]
