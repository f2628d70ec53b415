"""Commands that list, find, show and disconnect the sessions of subscribers."""

from collections.abc import Sequence
from typing import Any

import click

from gateway_client.errors import ClientError
from gateway_client.gateway import Record, RemoteGateway
from gateway_contract.core.sessions import SessionSummary
from gatewayctl import cli, sessions
from gatewayctl.commands import history, jobs, rates, traffic
from gatewayctl.completion import complete_field, complete_order
from gatewayctl.errors import CommandError, NothingFound
from gatewayctl.results import Report, ResultList, Sheet
from gatewayctl.terminal import print_errors, show_progress
from gatewayctl.texts import count_sessions, escape, format_time, format_value

#: Number of records of the history that are shown if a search finds no session.
_MAX_PAST_RECORDS = 3

_limit_option = cli.create_limit_option("The largest number of records; all by default.")
_interface_type = complete_field("/interfaces/vlans", "vlans", "name", "oper_state")


@cli.group(
    sections={
        "Sessions": ("list", "find", "show", "summary"),
        "Changes": ("disconnect", "rate"),
        "Past": ("history", "timeline", "failed-sign-ons", "flapping"),
        "Traffic": ("watch", "top"),
    }
)
def subscribers() -> None:
    """Find and change the sessions of subscribers.

    A TARGET is the id of a session, or the whole username, MAC address (in any spelling) or IP address of the
    subscriber. A TARGET that names several sessions is refused, and so is a number that is the id of a
    session and was the username of another subscriber in the last 30 days: the command lists them and does
    nothing. id:120, user:120, ip:ADDRESS and mac:ADDRESS say what is meant.
    """


@subscribers.command("list")
@click.option("--type", type=sessions.TYPE_CHOICE, help="Only sessions of this type.")
@click.option("--username", metavar="NAME", help="Only this username.")
@click.option("--ip", "ip_address", metavar="ADDRESS", help="Only this IPv4 or IPv6 address.")
@click.option("--mac", "mac_address", metavar="ADDRESS", help="Only this MAC address, in any spelling.")
@click.option(
    "--interface", metavar="NAME", type=_interface_type, help="Only this interface or access interface."
)
@click.option(
    "--sort", metavar="FIELD", type=complete_order(SessionSummary.__struct_fields__),
    help="A field of the sessions; -FIELD for descending order.",
)  # fmt: skip
@_limit_option
@cli.read_command
def list_(gateway: RemoteGateway, limit: int | None, **query: Any) -> ResultList:
    """List the sessions. All filters must match."""
    records = gateway.list_records(sessions.PATH, "sessions", query, limit)
    return ResultList(records, sessions.LIST_COLUMNS)


@subscribers.command()
@click.argument("text")
@_limit_option
@cli.read_command
def find(gateway: RemoteGateway, text: str, limit: int | None) -> ResultList:
    """Find sessions by a username, an address, an interface or an id, or by a part of one.

    TEXT is a part of a username or of a MAC address in any spelling, an address, its first parts or a prefix,
    an interface, a VLAN id, a session id, or the beginning of an accounting id. id:, user:, ip: or mac:
    before TEXT says what is meant. If a number was also the username of another subscriber in the last 30
    days, standard error names this subscriber. Exit status 1 if there is no such session: then standard error
    has the last sessions and failed sign-ons of the history that match.
    """
    records = gateway.list_records(sessions.PATH, "sessions", {"search": text}, limit)
    if not records:
        raise NothingFound(f"no session matches {text!r}", *_list_past(gateway, text))
    has_user = not sessions.is_id(text) or any(each["username"] == text for each in records)
    notes = () if has_user else _describe_namesake(gateway, text)
    return ResultList(records, sessions.SEARCH_COLUMNS, notes=notes)


def _describe_namesake(gateway: RemoteGateway, text: str) -> list[str]:
    """Return a line about the subscriber whose username is the number `text` and who had a session in the
    last 30 days. Called after a search for the number has found only sessions with other usernames. Without
    such a subscriber, return no line."""
    try:
        record = sessions.find_recent_user(gateway, text)
    except ClientError as error:
        return [f"the history: {each}" for each in error.lines]
    return [] if record is None else [f"{text} is also a username: {sessions.describe_session(record)}"]


def _list_past(gateway: RemoteGateway, text: str) -> list[str]:
    """Return lines about the last sessions and the last failed sign-ons of the history that match a text."""
    query = {"search": text, "limit": _MAX_PAST_RECORDS}
    try:
        records = gateway.get(f"{sessions.PATH}/history", **query)["sessions"]
        sign_ons = gateway.get(f"{sessions.PATH}/failed-sign-ons", **query)["failures"]
    except ClientError as error:
        return [f"the history: {each}" for each in error.lines]
    return [
        *(f"{_describe_end(each)}: {_describe_line(each)}" for each in records),
        *(
            f"failed to sign on {format_time(each['last_at'])}, {format_value(each['reason'])}, "
            f"{each['attempts']} times: {_describe_line(each)}"
            for each in sign_ons
        ),
    ]


def _describe_end(session: Record) -> str:
    # If the history has a hole, only the last time at which the session was up is known.
    last = session.get("ended_after") or session["ended_at"]
    if last is None:
        return f"up since {format_time(session['started_at'])}"
    return f"last seen {format_time(last)}, {format_value(session['reason'])}"


def _describe_line(record: Record) -> str:
    names = (record["username"], record.get("ip_address"), record["mac_address"], record["access_interface"])
    return ", ".join(escape(each) for each in names if each)


@subscribers.command()
@sessions.target_argument
@cli.read_command
def show(gateway: RemoteGateway, target: sessions.Target) -> Sheet:
    """Show one session with all its fields."""
    return Sheet(sessions.find_session(gateway, target))


@subscribers.command()
@cli.read_command
def summary(gateway: RemoteGateway) -> Sheet:
    """Show the number of sessions by type."""
    return Sheet(gateway.get(f"{sessions.PATH}/summary"))


@subscribers.command()
@click.argument("targets", metavar="[TARGET]...", nargs=-1, type=sessions.target_type)
@click.option(
    "--interface", metavar="NAME", type=_interface_type, help="All sessions on this access interface."
)
@jobs.where_option
@jobs.per_second_option
@cli.dry_run_option
@cli.yes_option
@cli.change_command
def disconnect(
    gateway: RemoteGateway,
    targets: Sequence[sessions.Target],
    interface: str | None,
    filter: Record,
    per_second: int | None,
    dry_run: bool,
    yes: bool,
) -> Report:
    """Disconnect sessions, after showing them and asking."""
    if filter:
        path = f"{sessions.PATH}/disconnect"
        return jobs.run_job(gateway, path, {"filter": filter}, "Disconnect them?", per_second, dry_run, yes)
    # Two targets may name the same session.
    records = (sessions.find_session(gateway, target) for target in targets)
    details = list({each["id"]: each for each in records}.values())
    if interface is not None:
        path, body = f"{sessions.PATH}/disconnect-by-interface", {"interface": interface}
        report, has_sessions = jobs.preview_change(gateway, path, body)
    else:
        rows = [
            {**each, "interface": each["ppp_interface"], "type": each["session_type"]} for each in details
        ]
        message = f"{count_sessions(len(rows))} would be disconnected"
        record = {"count": len(rows), "sessions": details, "message": message}
        report, has_sessions = Report(message, record, table=sessions.list_affected(rows)), True
    if dry_run or not has_sessions:
        return report
    cli.confirm(
        "Disconnect them?", yes=yes, refusal="no session was disconnected", report=report, always_report=True
    )
    if interface is None:
        return _disconnect_each(gateway, details)
    response = gateway.send("POST", path, body)
    return Report(response["message"], response)


def _disconnect_each(gateway: RemoteGateway, records: Sequence[Record]) -> Report:
    """Disconnect the sessions one after the other, and continue after a failure. Raises CommandError at the
    end if any session could not be disconnected."""
    messages, lines, errors = [], [], []
    with show_progress(len(records)) as update:
        for each in records:
            who = sessions.describe_subscriber(each)
            reasons: Sequence[str] = ()
            try:
                messages.append(gateway.send("DELETE", sessions.get_session_path(each["id"]))["message"])
                lines.append(f"{messages[-1]}: {who}")
            except ClientError as error:
                errors.append(error)
                reasons = [f"session {each['id']}, {who}: {reason}" for reason in error.lines]
            update(len(messages) + len(errors), len(errors), reasons)
    if errors:
        print_errors(lines)
        status = max(error.status for error in errors)
        raise CommandError(status, f"{len(messages)} of {count_sessions(len(records))} disconnected")
    return Report("\n".join(lines), {"count": len(messages), "messages": messages})


for each in (
    rates.rate, history.history, history.timeline, history.failed_sign_ons, history.flapping, traffic.watch,
    traffic.top,
):  # fmt: skip
    subscribers.add_command(each)
