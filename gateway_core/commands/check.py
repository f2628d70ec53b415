"""`gateway-core check`: tries a core daemon against the interface of the API, and says what it lacks.

It only calls methods that read. Of the others it checks that the core declares them.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import msgspec

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.contract import Command, Method, Page, PagedMethod, list_field, reply_of
from gateway_contract.core import configuration, jobs, sessions, traffic
from gateway_contract.core.interface import CORE, REQUIRED
from gateway_contract.varlink.client import Client, Unreachable, join_group_of
from gateway_contract.varlink.protocol import ErrorReply

#: Seconds for a call, and for the first reply of a stream, which comes within 15 s.
_TIMEOUT, _SILENCE = 10.0, 20.0
_SERVICE = "org.varlink.service"
#: No interface has it.
_UNKNOWN = "NoSuchMethod"
#: Also in an interface file with comments, which begin with #.
_METHOD = re.compile(r"^\s*method\s+([A-Za-z][A-Za-z0-9]*)", re.MULTILINE)
_PAGE = Page(10)
#: Methods about one record: the list that has it, and the field that names it.
_RECORDS: dict[type[Method[Any]], tuple[type[Method[Any]], str]] = {
    sessions.GetSession: (sessions.ListSessions, "id"),
    traffic.WatchTraffic: (sessions.ListSessions, "id"),
    jobs.GetJob: (jobs.ListJobs, "id"),
    configuration.GetArchivedRevision: (configuration.ListArchive, "revision"),
}
#: Parameters of other methods.
_ARGUMENTS: dict[type[Method[Any]], tuple[Any, ...]] = {
    configuration.ListChanges: (None, 0),
    configuration.CheckAccess: (("nobody",),),
    # The API replaces a name that nobody can have by an empty one.
    configuration.GetLogin: ("",),
}


class CannotCheck(GatewayApiError):
    """The text is the reason, for the operator."""


class _Description(msgspec.Struct):
    description: str


class _Info(msgspec.Struct):
    """The reply of `org.varlink.service.GetInfo`."""

    product: str
    version: str
    interfaces: list[str]


@dataclass
class Findings:
    """The methods that a core lacks, and its wrong replies. Methods have the interface file's order."""

    product: str
    declared: frozenset[str]
    #: Methods that a core must have.
    required: list[str] = field(default_factory=list)
    optional: list[str] = field(default_factory=list)
    #: By method, or in words what was tried: what is wrong with the reply.
    wrong: dict[str, str] = field(default_factory=dict)
    #: Methods whose reply was checked.
    checked: list[str] = field(default_factory=list)

    @property
    def is_usable(self) -> bool:
        """Whether the core can stand behind the API."""
        return not self.required and not self.wrong


@click.command("check")
@click.argument("socket", type=click.Path(path_type=Path))
def check_core(socket: Path) -> int:
    """Tries a core daemon against the interface of the API, and says what it lacks.

    Calls only methods that read, and changes nothing. SOCKET is where the core listens.
    """
    try:
        join_group_of(socket)
        with closing(Client(socket, timeout=_TIMEOUT)) as client:
            findings = check(client, socket)
    except (GatewayApiError, OSError) as error:
        sys.stderr.write(f"gateway-core check: {error}\n")
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in report(findings)))
    return 0 if findings.is_usable else 1


def check(client: Client, socket: Path) -> Findings:
    """`client` is one of the core at `socket`. Raises CannotCheck, Unreachable and OSError."""
    info = _introspected(client, "GetInfo", None, _Info)
    if CORE.name not in info.interfaces:
        raise CannotCheck(f"{info.product} has no interface {CORE.name}, only {', '.join(info.interfaces)}")
    told = _introspected(client, "GetInterfaceDescription", {"interface": CORE.name}, _Description)
    findings = Findings(f"{info.product} {info.version}", frozenset(_METHOD.findall(told.description)))
    _try_unknown(client, findings)
    replies: dict[type[Method[Any]], Any] = {}
    absent: set[str] = set()
    for call in reads(replies):
        kind, name = type(call), type(call).__name__
        if name not in findings.declared:
            continue
        before = socket.stat().st_mtime_ns
        try:
            replies[kind] = _reply(client, call)
            _check_version(replies[kind], socket, before)
        except ErrorReply as error:
            if error.is_unknown_method:
                absent.add(name)
            else:
                findings.wrong[name] = f"it replies with the error {error.name}"
        except (Unreachable, msgspec.MsgspecError, RecursionError, CannotCheck) as error:
            findings.wrong[name] = str(error)
        else:
            findings.checked.append(name)
    for method in CORE.methods:
        name = method.__name__
        if name not in findings.declared or name in absent:
            (findings.required if method in REQUIRED else findings.optional).append(name)
    return findings


def reads(replies: Mapping[type[Method[Any]], Any]) -> Iterator[Method[Any]]:
    """A call for each method that only reads. Those about one record follow the list that has it, which the
    caller adds to the replies; without a record there is no call."""
    for method in CORE.methods:
        if issubclass(method, Command):
            continue
        if method in _RECORDS:
            lists, field = _RECORDS[method]
            found = getattr(replies.get(lists), list_field(lists), ())
            if found:
                yield method(getattr(found[0], field))
        elif method in _ARGUMENTS:
            yield method(*_ARGUMENTS[method])
        elif issubclass(method, PagedMethod):
            yield method(page=_PAGE)
        # Those that change something without a Command require parameters.
        elif not any(field.required for field in msgspec.structs.fields(method)):
            yield method()


def report(findings: Findings) -> Iterator[str]:
    """The lines for the operator."""
    yield findings.product
    yield f"Methods whose reply fits: {len(findings.checked)}."
    for name, reason in findings.wrong.items():
        yield f"Wrong reply: {name}: {reason}"
    for name in findings.required:
        yield f"Missing, and required: {name}"
    if findings.optional:
        yield f"Missing, and optional: {', '.join(findings.optional)}."
        yield "The API responds 501 to requests that require one of them, and does without them elsewhere."
    done = {*findings.checked, *findings.wrong, *findings.required, *findings.optional}
    if untried := [one.__name__ for one in CORE.methods if one.__name__ not in done]:
        reason = "they change something, or there is no record"
        yield f"Declared, and not called, since {reason}: {', '.join(untried)}."
    yield f"This core {'can' if findings.is_usable else 'cannot'} stand behind the API."


def _introspected(client: Client, method: str, parameters: Any, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(client.call(f"{_SERVICE}.{method}", parameters), type=kind)
    except (ErrorReply, msgspec.MsgspecError) as error:
        raise CannotCheck(f"the daemon does not describe itself: {_SERVICE}.{method}: {error}") from error


def _try_unknown(client: Client, findings: Findings) -> None:
    """The API takes an optional method for missing by this error only."""
    try:
        client.call(f"{CORE.name}.{_UNKNOWN}")
        replied = "no error"
    except ErrorReply as error:
        if error.is_unknown_method:
            return
        replied = f"the error {error.name}"
    except Unreachable as error:
        replied = str(error)
    findings.wrong["a method that does not exist"] = f"{replied}, and not {_SERVICE}.MethodNotFound"


def _reply(client: Client, call: Method[Any]) -> Any:
    """Return the reply, or the first one of a stream. Raises ErrorReply, Unreachable, msgspec.MsgspecError
    and CannotCheck."""
    kind = type(call)
    if kind.streams:
        with closing(client.stream(CORE.method(kind), call, silence=_SILENCE)) as replies:
            return msgspec.json.decode(next(replies), type=reply_of(kind))
    reply = msgspec.json.decode(client.call(CORE.method(kind), call), type=reply_of(kind))
    if isinstance(call, PagedMethod) and call.page is not None:
        held = len(getattr(reply, list_field(kind)))
        if held > call.page.limit:
            raise CannotCheck(f"a page of at most {call.page.limit} records has {held}")
    return reply


def _check_version(reply: Any, socket: Path, before: int) -> None:
    """`before` is the modification time of the socket before the call: it is another one now if the
    configuration changed meanwhile. Raises CannotCheck."""
    if isinstance(reply, configuration.AccessReply | configuration.ApiSettings):
        is_same = socket.stat().st_mtime_ns == before
        if is_same and reply.version not in (None, before):
            raise CannotCheck("its version is not the modification time of the socket")
