"""`gateway-core check`: a test of a core daemon against the interface of the API.

The check calls only methods that read. Of the methods that change something, the check only tests whether the
core declares the required methods.
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
from gateway_contract.contract import Command, Method, Page, PagedMethod, get_list_field, get_reply_type
from gateway_contract.core import configuration, jobs, sessions, traffic
from gateway_contract.core.interface import CORE, REQUIRED
from gateway_contract.varlink.client import Client, Unreachable, join_group_of
from gateway_contract.varlink.protocol import ErrorReply

#: Deadlines of a call, and of the first reply of a stream, which comes within 15 s.
_CALL_TIMEOUT_SECONDS, _STREAM_TIMEOUT_SECONDS = 10.0, 20.0
_SERVICE = "org.varlink.service"
#: A method of no interface.
_UNKNOWN_METHOD = "NoSuchMethod"
#: Declaration of a method in an interface file, also with comments, which begin with #.
_DECLARATION_PATTERN = re.compile(r"^\s*method\s+([A-Za-z][A-Za-z0-9]*)", re.MULTILINE)
_FIRST_PAGE = Page(10)
#: Methods about one record, with the list that has the record, and the field that is the parameter.
_LISTS_BY_RECORD_METHOD: dict[type[Method[Any]], tuple[type[Method[Any]], str]] = {
    sessions.GetSession: (sessions.ListSessions, "id"),
    traffic.WatchTraffic: (sessions.ListSessions, "id"),
    jobs.GetJob: (jobs.ListJobs, "id"),
    configuration.GetArchivedRevision: (configuration.ListArchive, "revision"),
}
#: Parameters of other methods.
_PARAMETERS_BY_METHOD: dict[type[Method[Any]], tuple[Any, ...]] = {
    configuration.ListChanges: (None, 0),
    configuration.CheckAccess: (("nobody",),),
    # The API replaces a name that nobody can have by an empty one.
    configuration.GetLogin: ("",),
}


class CannotCheck(GatewayApiError):
    """Error of a check that cannot be carried out or finds a wrong reply. The text is the reason, for the
    operator."""


class _Description(msgspec.Struct):
    description: str


class _Info(msgspec.Struct):
    product: str
    version: str
    interfaces: list[str]


@dataclass
class Findings:
    """Results of a check. Methods are in the order of the interface file.

    `declared` contains the methods that the core declares. `required` contains the missing methods that every
    core must have, and `optional` the other missing methods. `wrong` maps each method with a wrong reply to
    its fault. `checked` contains the methods with a right reply.
    """

    product: str
    declared: frozenset[str]
    required: list[str] = field(default_factory=list)
    optional: list[str] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)
    checked: list[str] = field(default_factory=list)

    @property
    def is_usable(self) -> bool:
        """True if the API can use the core."""
        return not self.required and not self.wrong


@click.command()
@click.argument("socket", type=click.Path(path_type=Path))
def check(socket: Path) -> int:
    """Tries a core daemon against the interface of the API, and says what it lacks.

    Calls only methods that read, and changes nothing. SOCKET is where the core listens.
    """
    try:
        join_group_of(socket)
        with closing(Client(socket, timeout=_CALL_TIMEOUT_SECONDS)) as client:
            findings = check_core(client, socket)
    except (GatewayApiError, OSError) as error:
        sys.stderr.write(f"gateway-core check: {error}\n")
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in format_findings(findings)))
    return 0 if findings.is_usable else 1


def check_core(client: Client, socket: Path) -> Findings:
    """Call the methods of a core that only read, and return the findings. `socket` is the path of the core's
    socket. Raises CannotCheck if the daemon does not have the interface, Unreachable if the daemon does not
    reply, and OSError if the socket cannot be found."""
    info = _introspect(client, "GetInfo", None, _Info)
    if CORE.name not in info.interfaces:
        raise CannotCheck(f"{info.product} has no interface {CORE.name}, only {', '.join(info.interfaces)}")
    interface_file = _introspect(client, "GetInterfaceDescription", {"interface": CORE.name}, _Description)
    findings = Findings(
        f"{info.product} {info.version}", frozenset(_DECLARATION_PATTERN.findall(interface_file.description))
    )
    _check_unknown_method(client, findings)
    replies: dict[type[Method[Any]], Any] = {}
    unknown_methods: set[str] = set()
    for call in make_calls(replies):
        kind, name = type(call), type(call).__name__
        if name not in findings.declared:
            continue
        before = socket.stat().st_mtime_ns
        try:
            replies[kind] = _read_reply(client, call)
            _check_version(replies[kind], socket, before)
        except ErrorReply as error:
            if error.is_unknown_method:
                unknown_methods.add(name)
            else:
                findings.wrong[name] = f"it replies with the error {error.name}"
        except (Unreachable, msgspec.MsgspecError, RecursionError, CannotCheck) as error:
            findings.wrong[name] = str(error)
        else:
            findings.checked.append(name)
    for method in CORE.methods:
        name = method.__name__
        if name not in findings.declared or name in unknown_methods:
            (findings.required if method in REQUIRED else findings.optional).append(name)
    return findings


def make_calls(replies: Mapping[type[Method[Any]], Any]) -> Iterator[Method[Any]]:
    """Yield a call of each method that only reads. The caller must add the reply to each call to `replies`. A
    method about one record is called for a record in the reply of the list method, and is omitted if that
    list is empty."""
    for method in CORE.methods:
        if issubclass(method, Command):
            continue
        if method in _LISTS_BY_RECORD_METHOD:
            list_method, field = _LISTS_BY_RECORD_METHOD[method]
            records = getattr(replies.get(list_method), get_list_field(list_method), ())
            if records:
                yield method(getattr(records[0], field))
        elif method in _PARAMETERS_BY_METHOD:
            yield method(*_PARAMETERS_BY_METHOD[method])
        elif issubclass(method, PagedMethod):
            yield method(page=_FIRST_PAGE)
        # Methods that change something without a Command require parameters.
        elif not any(field.required for field in msgspec.structs.fields(method)):
            yield method()


def format_findings(findings: Findings) -> Iterator[str]:
    """Yield the lines of the report for the operator."""
    yield findings.product
    yield f"Methods whose reply fits: {len(findings.checked)}."
    for name, reason in findings.wrong.items():
        yield f"Wrong reply: {name}: {reason}"
    for name in findings.required:
        yield f"Missing, and required: {name}"
    if findings.optional:
        yield f"Missing, and optional: {', '.join(findings.optional)}."
        yield "The API responds 501 to requests that require one of them, and does without them elsewhere."
    reported_methods = {*findings.checked, *findings.wrong, *findings.required, *findings.optional}
    if uncalled_methods := [
        method.__name__ for method in CORE.methods if method.__name__ not in reported_methods
    ]:
        reason = "they change something, or there is no record"
        yield f"Declared, and not called, since {reason}: {', '.join(uncalled_methods)}."
    yield f"This core {'can' if findings.is_usable else 'cannot'} stand behind the API."


def _introspect(client: Client, method: str, parameters: Any, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(client.call(f"{_SERVICE}.{method}", parameters), type=kind)
    except (ErrorReply, msgspec.MsgspecError) as error:
        raise CannotCheck(f"the daemon does not describe itself: {_SERVICE}.{method}: {error}") from error


def _check_unknown_method(client: Client, findings: Findings) -> None:
    # By this error alone, the API knows that an optional method is missing.
    try:
        client.call(f"{CORE.name}.{_UNKNOWN_METHOD}")
        reply = "no error"
    except ErrorReply as error:
        if error.is_unknown_method:
            return
        reply = f"the error {error.name}"
    except Unreachable as error:
        reply = str(error)
    findings.wrong["a method that does not exist"] = f"{reply}, and not {_SERVICE}.MethodNotFound"


def _read_reply(client: Client, call: Method[Any]) -> Any:
    """Call a method, and return its reply, or the first reply of a stream. Raises ErrorReply if the reply is
    an error, Unreachable if there is no reply, msgspec.MsgspecError if the reply breaks the contract, and
    CannotCheck if a page has too many records."""
    kind = type(call)
    if kind.streams:
        with closing(client.stream(CORE.method(kind), call, silence=_STREAM_TIMEOUT_SECONDS)) as replies:
            return msgspec.json.decode(next(replies), type=get_reply_type(kind))
    reply = msgspec.json.decode(client.call(CORE.method(kind), call), type=get_reply_type(kind))
    if isinstance(call, PagedMethod) and call.page is not None:
        length = len(getattr(reply, get_list_field(kind)))
        if length > call.page.limit:
            raise CannotCheck(f"a page of at most {call.page.limit} records has {length}")
    return reply


def _check_version(reply: Any, socket: Path, before: int) -> None:
    """Check that the version in a reply is the modification time of the socket. `before` is the modification
    time when the call was sent; nothing is checked if the modification time has changed since. Raises
    CannotCheck if the version differs."""
    if isinstance(reply, configuration.AccessReply | configuration.ApiSettings):
        is_same = socket.stat().st_mtime_ns == before
        if is_same and reply.version not in (None, before):
            raise CannotCheck("its version is not the modification time of the socket")
