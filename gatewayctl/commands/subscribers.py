"""Subscribers: to list, find and show their sessions, and to disconnect them."""

from collections.abc import Sequence
from typing import Any

import click

from gateway_contract.core.sessions import SessionSummary
from gatewayctl.client.errors import ClientError
from gatewayctl.client.gateway import Record, RemoteGateway
from gatewayctl.command import group
from gatewayctl.commands import history, jobs, rates, traffic
from gatewayctl.completion import listed, orders
from gatewayctl.failures import CommandFailure, ExitStatus, status_of
from gatewayctl.invocation import acts, confirm, dry_run_option, reads, yes_option
from gatewayctl.results import Report, ResultList, Sheet
from gatewayctl.sessions import COLUMNS, FOUND, TYPES, session_path, touched
from gatewayctl.targets import (
    Target,
    TargetType,
    describe_session,
    describe_subscriber,
    find_recent_user,
    find_session,
    is_id,
)
from gatewayctl.terminal import Progress, complain
from gatewayctl.texts import line, moment, plain, sessions

_LIST = "/subscribers"
#: Records of the history that a search without a session shows.
_MOST_PAST = 3

target = click.argument("target", type=TargetType())
limit_option = click.option(
    "--limit", metavar="N", type=click.IntRange(1), help="The most records; all by default."
)
interface_type = listed("/interfaces/vlans", "vlans", "name", "oper_state")


@group()
def subscribers() -> None:
    """Finds and changes the sessions of subscribers.

    A TARGET is the id of a session, or the whole username, MAC address (in any spelling) or IP address of the
    subscriber. One that names several sessions is refused, and so is a number that is the id of a session and
    was the username of another subscriber in the last 30 days: the command lists them and does nothing.
    id:120, user:120, ip:ADDRESS and mac:ADDRESS say what is meant.
    """


@subscribers.command("list")
@reads
@click.option("--type", type=TYPES, help="Sessions of this type.")
@click.option("--username", metavar="NAME", help="With this username.")
@click.option("--ip", "ip_address", metavar="ADDRESS", help="With this IPv4 or IPv6 address.")
@click.option("--mac", "mac_address", metavar="ADDRESS", help="With this MAC address, in any spelling.")
@click.option(
    "--interface", metavar="NAME", type=interface_type, help="On this interface or access interface."
)
@click.option(
    "--sort", metavar="FIELD", type=orders(SessionSummary.__struct_fields__),
    help="A field of the sessions; -FIELD for descending order.",
)  # fmt: skip
@limit_option
def list_(gateway: RemoteGateway, limit: int | None, **query: Any) -> ResultList:
    """Lists the sessions. All filters must match."""
    return ResultList(gateway.pages(_LIST, "sessions", query, limit), COLUMNS)


@subscribers.command()
@reads
@click.argument("text")
@limit_option
def find(gateway: RemoteGateway, text: str, limit: int | None) -> ResultList:
    """Finds sessions by what is known of them.

    TEXT is a part of a username or of a MAC address in any spelling, an address, its first parts or a prefix,
    an interface, a VLAN id, a session id, or the beginning of an accounting id. id:, user:, ip: or mac:
    before it says which is meant. If a number was also the username of another subscriber in the last 30
    days, standard error names this subscriber. Exit status 1 if there is no such session: then standard error
    has the last sessions and failed sign-ons of the history that match.
    """
    found = gateway.pages(_LIST, "sessions", {"search": text}, limit)
    if not found:
        raise CommandFailure(ExitStatus.REFUSED, f"no session matches {text!r}", *_past(gateway, text))
    if is_id(text) and not any(each["username"] == text for each in found):
        complain(_describe_namesake(gateway, text))
    return ResultList(found, FOUND)


def _describe_namesake(gateway: RemoteGateway, text: str) -> list[str]:
    """Return a line about the recent subscriber whose username is a number that found other sessions."""
    try:
        record = find_recent_user(gateway, text)
    except ClientError as failure:
        return [f"the history: {each}" for each in failure.lines]
    return [] if record is None else [f"{text} is also a username: {describe_session(record)}"]


def _past(gateway: RemoteGateway, text: str) -> list[str]:
    """The last sessions and failed sign-ons of the history that match a text, as lines."""
    query = {"search": text, "limit": _MOST_PAST}
    try:
        ended = gateway.get(f"{_LIST}/history", **query)["sessions"]
        failed = gateway.get(f"{_LIST}/failed-sign-ons", **query)["failures"]
    except ClientError as failure:
        return [f"the history: {each}" for each in failure.lines]
    return [
        *(f"{_end(each)}: {_who(each)}" for each in ended),
        *(
            f"failed to sign on {moment(each['last_at'])}, {plain(each['reason'])}, "
            f"{each['attempts']} times: {_who(each)}"
            for each in failed
        ),
    ]


def _end(session: Record) -> str:
    # A session that the history did not see end has only the last time at which it was up.
    last = session.get("ended_after") or session["ended_at"]
    if last is None:
        return f"up since {moment(session['started_at'])}"
    return f"last seen {moment(last)}, {plain(session['reason'])}"


def _who(record: Record) -> str:
    named = (record["username"], record.get("ip_address"), record["mac_address"], record["access_interface"])
    return ", ".join(line(each) for each in named if each)


@subscribers.command()
@reads
@target
def show(gateway: RemoteGateway, target: Target) -> Sheet:
    """Shows one session with all its fields."""
    return Sheet(find_session(gateway, target))


@subscribers.command()
@reads
def summary(gateway: RemoteGateway) -> Sheet:
    """Shows the number of sessions by type."""
    return Sheet(gateway.get(f"{_LIST}/summary"))


@subscribers.command()
@acts
@click.argument("targets", metavar="[TARGET]...", nargs=-1, type=TargetType())
@click.option(
    "--interface", metavar="NAME", type=interface_type, help="All sessions on this access interface."
)
@jobs.where_options
@dry_run_option
@yes_option
def disconnect(
    gateway: RemoteGateway,
    targets: Sequence[Target],
    interface: str | None,
    filter: Record,
    per_second: int | None,
    dry_run: bool,
    yes: bool,
) -> Report:
    """Disconnects sessions, after it has shown them and asked."""
    if filter:
        job = jobs.JobRequest(f"{_LIST}/disconnect", {"filter": filter}, per_second)
        return job.run(gateway, "Disconnect them?", dry_run=dry_run, yes=yes)
    if interface is not None:
        return _disconnect_interface(gateway, interface, dry_run, yes)
    # Two targets may name one session.
    records = list({each["id"]: each for each in (find_session(gateway, each) for each in targets)}.values())
    found = [{**each, "interface": each["ppp_interface"], "type": each["session_type"]} for each in records]
    would = f"{sessions(len(found))} would be disconnected"
    record = {"count": len(found), "sessions": records, "message": would}
    shown = Report(would, record, table=touched(found))
    if dry_run:
        return shown
    _confirm(shown, yes=yes)
    return _disconnect_each(gateway, records)


def _confirm(shown: Report, *, yes: bool) -> None:
    question, otherwise = "Disconnect them?", "no session was disconnected"
    confirm(question, yes=yes, otherwise=otherwise, about=shown, always=True)


def _disconnect_interface(gateway: RemoteGateway, interface: str, dry_run: bool, yes: bool) -> Report:
    path, body = f"{_LIST}/disconnect-by-interface", {"interface": interface}
    preview = gateway.send("POST", path, {**body, "dry_run": True})
    shown = Report(preview["message"], preview, table=touched(preview["sessions"]))
    if dry_run or preview["count"] == 0:
        return shown
    _confirm(shown, yes=yes)
    done = gateway.send("POST", path, body)
    return Report(done["message"], done)


def _disconnect_each(gateway: RemoteGateway, records: Sequence[Record]) -> Report:
    """Continues after a failure, as the other sessions must end too. Raises ClientError."""
    said, shown, failures = [], [], []
    with Progress(len(records)) as progress:
        for each in records:
            who = describe_subscriber(each)
            try:
                said.append(gateway.send("DELETE", session_path(each["id"]))["message"])
                shown.append(f"{said[-1]}: {who}")
            except ClientError as failure:
                failures.append(failure)
                complain([f"session {each['id']}, {who}: {reason}" for reason in failure.lines])
            progress.advance(failed=len(failures))
    if failures:
        complain(shown)
        worst = max(map(status_of, failures))
        raise CommandFailure(worst, f"{len(said)} of {sessions(len(records))} disconnected")
    return Report("\n".join(shown), {"count": len(said), "messages": said})


for title, commands in {
    "Sessions": (list_, find, show, summary),
    "Changes": (disconnect, rates.rate),
    "Past": (history.history, history.timeline, history.failed_sign_ons, history.flapping),
    "Traffic": (traffic.watch, traffic.top),
}.items():
    subscribers.add_section(title, commands)
