"""Operations as views of Flask, without a core: what may happen before a caller has access."""

import errno
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import msgspec
import pytest
from flask import Blueprint, Response, request_finished, request_started, url_for
from flask.testing import FlaskClient
from prometheus_client import CollectorRegistry
from prometheus_flask_exporter import PrometheusMetrics
from werkzeug.test import TestResponse

from gateway_api.audit.record import AuditEntry
from gateway_api.base.settings import TOKEN, USERS, Profile, Settings
from gateway_api.web.access import ADMIN, ANY_ROLE, Access
from gateway_api.web.app import BLUEPRINTS, Application, create_app, list_routes
from gateway_api.web.operation import (
    ApiOperation,
    Created,
    RawJson,
    View,
    WithETag,
    make_path_template,
    operation,
)
from gateway_api.web.parse import SessionIdConverter
from gateway_api.web.records import Message, SignedIn
from gateway_api.web.request import get_request
from gateway_api.web.services import EXTENSION_NAME, UserServices, WorkerServices
from gateway_contract.base import durable
from gateway_contract.base.errors import AuditUnavailable, CoreUnavailable, NotFound
from gateway_contract.core.configuration import AccessReply, ApiSettings, ApiUser, HistoryLimits, Role

STATIC_TOKEN = ApiSettings(
    enabled=True,
    auth_token="only-for-tests.0123456789",
    listen_address="127.0.0.1",
    listen_port=8080,
    denied_networks=(),
    receivers=(),
    history=HistoryLimits(90, 1024),
)

ALICE = AccessReply(True, (ApiUser("alice", Role.OPERATOR, "1"),))

both = pytest.mark.parametrize("profile", [USERS, TOKEN], ids=lambda profile: profile.name)


def parts(folder: Path, profile: Profile = USERS) -> WorkerServices:
    settings = Settings(folder / "none", folder, b"-" * 32, folder, audit=folder, profile=profile)
    return (UserServices if profile is USERS else WorkerServices)(settings)


class Log:
    """What happened, in order."""

    def __init__(self) -> None:
        self.happened: list[str] = []

    def view(self, *_: Any) -> Message:
        self.happened.append("view")
        return Message("done")


def serving(folder: Path, reply: AccessReply, view: View, method: str = "GET") -> Application:
    """An application with one route of another blueprint, while the core replies so about every user."""
    services = parts(folder)
    services.core.check_access = lambda _, **__: reply  # type: ignore[method-assign]
    app, rows = create_app(services), Blueprint("rows", __name__)
    for path in ("/row", "/row/<name>"):
        rows.add_url_rule(path, f"at{len(path)}", view, methods=[method])
    app.register_blueprint(rows)
    return app


def token_of(app: Application, role: Role) -> dict[str, str]:
    token = app.extensions[EXTENSION_NAME].tokens.issue("alice", role, "1", 60)
    return {"Authorization": f"Bearer {token}"}


def respond(
    folder: Path,
    view: View,
    role: Role = Role.OPERATOR,
    *,
    known: bool = True,
    path: str = "/row",
    method: str = "GET",
) -> TestResponse:
    """The response to a request with the token of a user whom the core knows or not."""
    reply = AccessReply(True, (ApiUser("alice", role, "1"),) if known else ())
    app = serving(folder, reply, view, method)
    headers = {**token_of(app, role), "Accept-Encoding": "gzip"}
    return app.test_client().open(path, method=method, headers=headers)


def status(*arguments: Any, **more: Any) -> int:
    return respond(*arguments, **more).status_code


def test_an_operation_has_an_access() -> None:
    with pytest.raises(TypeError, match="access"):
        operation()  # type: ignore[call-arg]


@both
def test_a_view_without_an_operation_never_runs(profile: Profile, tmp_path: Path) -> None:
    app, log = create_app(parts(tmp_path, profile)), Log()
    app.add_url_rule("/aside", "aside", log.view)
    assert app.test_client().get("/aside").status_code == 500
    assert log.happened == []


def test_a_view_without_an_operation_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten = Blueprint("forgotten", __name__)
    forgotten.add_url_rule("/forgotten", "view", Log().view)
    monkeypatch.setitem(BLUEPRINTS, TOKEN, (forgotten,))
    with pytest.raises(RuntimeError, match=r"forgotten\.view has no operation"):
        create_app(parts(tmp_path, TOKEN))


@both
def test_no_line_of_a_view_runs_before_its_caller_has_access(
    profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services, log = parts(tmp_path, profile), Log()
    services.core.check_access = lambda _, **__: AccessReply(True, ())  # type: ignore[method-assign]
    services.core.get_settings = lambda: STATIC_TOKEN  # type: ignore[method-assign]
    client = create_app(services).test_client()
    closed = [route for route in list_routes(profile) if route.operation.access in (ANY_ROLE, ADMIN)]
    assert len(closed) >= (7 if profile is TOKEN else 50)
    for route in closed:
        monkeypatch.setitem(vars(route.operation), "function", log.view)
        path = re.sub(r"{[^}]*}", "7", route.path)
        for headers in ({}, {"Authorization": "Bearer another"}):
            answer = client.open(path, method=route.method, headers=headers)
            assert (answer.status_code, log.happened) == (401, []), route


def test_flask_runs_its_hooks_signals_and_error_handlers(tmp_path: Path) -> None:
    log = Log()

    def view() -> Message:
        log.happened.append(url_for("system.version"))
        raise LookupError

    app = serving(tmp_path, ALICE, operation(Access.ANY_ROLE)(view))

    def note(name: str) -> Callable[..., Any]:
        return lambda *given, **_: log.happened.append(name) or (given[0] if name == "after" else None)

    app.before_request(note("before"))
    app.after_request(note("after"))
    app.teardown_request(note("teardown"))
    app.teardown_appcontext(note("end of the context"))
    app.register_error_handler(LookupError, lambda _: ("none", 418))
    with request_started.connected_to(note("started"), app), request_finished.connected_to(note("end"), app):
        assert app.test_client().get("/row", headers=token_of(app, Role.OPERATOR)).status_code == 418
    assert log.happened == [
        *("started", "before", "/api/v1/system/version", "after", "end", "teardown", "end of the context"),
    ]


def test_flask_lists_all_routes_with_their_views() -> None:
    command = [sys.executable, "-m", "flask", "--app", "gateway_api.web.app", "routes"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {tuple(map(make_path_template, line.split())) for line in listed.splitlines()}
    assert {(route.name, route.method, route.path) for route in list_routes(USERS)} <= found


def test_an_extension_of_flask_works(tmp_path: Path) -> None:
    app, registry = serving(tmp_path, ALICE, operation(Access.ANY_ROLE)(Log().view)), CollectorRegistry()
    PrometheusMetrics(app, path=None, registry=registry)
    app.test_client().get("/row", headers=token_of(app, Role.OPERATOR))
    labels = {"method": "GET", "status": "200"}
    assert registry.get_sample_value("flask_http_request_total", labels) == 1


@pytest.mark.parametrize("known", [True, False])
def test_a_view_runs_only_when_its_caller_has_access(tmp_path: Path, known: bool) -> None:
    log = Log()
    view = operation(Access.ANY_ROLE)(log.view)
    assert status(tmp_path, view, known=known) == (200 if known else 401)
    assert log.happened == (["view"] if known else [])


def test_the_caller_is_known_also_where_the_core_does_not_reply(tmp_path: Path) -> None:
    authors = []

    def view() -> Message:
        authors.append(get_request().user)
        return Message("done")

    # There is no socket of a core.
    app, rows = create_app(parts(tmp_path)), Blueprint("rows", __name__)
    rows.add_url_rule("/row", "row", operation(Access.ANY_ROLE, without_core=True)(view))
    app.register_blueprint(rows)
    assert app.test_client().get("/row", headers=token_of(app, Role.OPERATOR)).status_code == 200
    assert authors == ["alice"]


@pytest.mark.parametrize(
    ("method", "access", "needs_the_log"),
    [("POST", Access.ADMIN, True), ("GET", Access.ADMIN, False), ("POST", Access.ANY_ROLE, False)],
)
def test_a_change_by_an_admin_needs_the_audit_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, access: Access, needs_the_log: bool
) -> None:
    def require_room(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(durable, "require_room", require_room)
    log = Log()
    view = operation(access)(log.view)
    assert status(tmp_path, view, Role.ADMIN, method=method) == (500 if needs_the_log else 200)
    assert log.happened == ([] if needs_the_log else ["view"])


@pytest.mark.parametrize(("enabled", "expected"), [(True, [404, 405]), (False, [503, 503])])
def test_a_path_is_unknown_only_while_the_api_is_enabled(
    tmp_path: Path, enabled: bool, expected: list[int]
) -> None:
    services = parts(tmp_path)
    services.core.check_access = lambda _, **__: AccessReply(enabled, ())  # type: ignore[method-assign]
    client = create_app(services).test_client()
    answers = [client.get("/api/v1/nothing"), client.patch("/api/v1/system/version")]
    assert [answer.status_code for answer in answers] == expected


def test_the_core_is_asked_once_even_if_it_does_not_reply(tmp_path: Path) -> None:
    asked = []

    def check_access(usernames: Any, **_: Any) -> AccessReply:
        asked.append(tuple(usernames))
        raise CoreUnavailable("no reply in time")

    def page() -> Response:
        return Response("")

    app = serving(tmp_path, AccessReply(True, ()), operation(Access.STATIC)(page))
    app.extensions[EXTENSION_NAME].core.check_access = check_access
    assert app.test_client().get("/row").status_code == 200
    assert asked == [()]


def test_who_is_refused_does_not_get_the_error_of_a_view(tmp_path: Path) -> None:
    def view() -> Message:
        raise NotFound("No such thing")

    refusing = operation(Access.ADMIN)(view)
    assert status(tmp_path, refusing, known=False) == 401
    assert status(tmp_path, refusing, known=True) == 403
    assert status(tmp_path, refusing, Role.ADMIN, known=True) == 404


MESSAGE = {"message": "done"}


@pytest.mark.parametrize(
    ("returned", "fields", "code", "body", "headers"),
    [
        (Message("done"), {}, 200, {"status": "ok", "data": MESSAGE}, {}),
        (Message("done"), {"is_bare": True}, 200, MESSAGE, {}),
        (Message("done"), {"status": 202, "preview": Message}, 200, {"status": "ok", "data": MESSAGE}, {}),
        (Message("done"), {"status": 202, "preview": SignedIn}, 202, {"status": "ok", "data": MESSAGE}, {}),
        (WithETag(Message("done"), "7"), {"is_bare": True}, 200, MESSAGE, {"ETag": '"7"'}),
        (Created(Message("done"), "/row/7"), {"is_bare": True}, 200, MESSAGE, {"Location": "/row/7"}),
        (WithETag(RawJson(msgspec.Raw(b"{}")), "7"), {"is_bare": True}, 200, {}, {"ETag": '"7"'}),
        (Response("{}", 418), {}, 418, {}, {}),
    ],
)
def test_a_response_has_what_the_view_returned(
    tmp_path: Path,
    returned: Any,
    fields: dict[str, Any],
    code: int,
    body: Any,
    headers: dict[str, str],
) -> None:
    view = operation(Access.ANY_ROLE, **fields)(lambda: returned)
    response = respond(tmp_path, view, method="POST")
    assert (response.status_code, msgspec.json.decode(response.data)) == (code, body)
    assert {name: response.headers.get(name) for name in ("ETag", "Location")} == {
        "ETag": None,
        "Location": None,
        **headers,
    }


@pytest.mark.parametrize("compressed", [True, False])
def test_a_response_is_compressed_where_its_operation_says_so(tmp_path: Path, compressed: bool) -> None:
    def view() -> Message:
        return Message("long" * 10_000)

    response = respond(tmp_path, operation(Access.ANY_ROLE, is_compressible=compressed)(view))
    assert response.headers.get("Content-Encoding") == ("gzip" if compressed else None)


@pytest.mark.parametrize(("access", "code"), [(Access.OPEN, 200), (Access.ANY_ROLE, 400)])
def test_a_view_gets_the_variables_of_its_path_and_no_unknown_query(
    tmp_path: Path, access: Access, code: int
) -> None:
    taken: list[Any] = []

    def view(**variables: Any) -> Message:
        taken.append(variables)
        return Message("done")

    taking = operation(access)(view)
    assert status(tmp_path, taking, path="/row/eth1") == 200
    assert status(tmp_path, taking, path="/row/eth1?other=1") == code
    assert taken == [{"name": "eth1"}] * (2 if code == 200 else 1)


def one() -> WithETag[RawJson[Message]]: ...


def two() -> SignedIn | Created[Message]: ...


def none() -> WithETag[None]: ...


@pytest.mark.parametrize(
    ("view", "records", "headers"),
    [
        (one, (Message,), ("ETag",)),
        (two, (SignedIn, Message), ("Location",)),
        (none, (), ("ETag",)),
    ],
)
def test_the_records_and_headers_are_those_that_the_view_returns(
    view: Callable[[], Any], records: tuple[type, ...], headers: tuple[str, ...]
) -> None:
    described = ApiOperation(view, Access.OPEN)
    assert (described.records, described.headers) == (records, headers)


@both
def test_a_host_that_is_no_name_is_refused(profile: Profile, tmp_path: Path) -> None:
    client = create_app(parts(tmp_path, profile)).test_client()
    path = "/api/v1/subscribers"
    assert client.get(path, headers={"Host": "a..b"}).status_code == 400
    assert client.get(path, headers={"Host": "LOCALHOST:8443"}).status_code != 400


@both
def test_a_request_for_a_websocket_gets_the_response_of_any_other(profile: Profile, tmp_path: Path) -> None:
    client = create_app(parts(tmp_path, profile)).test_client()
    path = "/api/v1/vlans" if profile is TOKEN else "/api/v1/system/version"
    for method in ("GET", "PATCH"):
        plain = client.open(path, method=method)
        answer = client.open(path, method=method, headers={"Connection": "Upgrade", "Upgrade": "websocket"})
        assert (answer.status_code, answer.data) == (plain.status_code, plain.data)
        assert answer.headers.get("Allow") == plain.headers.get("Allow")
        assert answer.status_code not in (400, 500)


def test_a_name_in_the_place_of_a_session_is_no_session() -> None:
    names = {
        route.path.removeprefix("/api/v1/subscribers/").partition("/")[0]
        for route in list_routes(USERS)
        if route.path.startswith("/api/v1/subscribers/")
    }
    assert [name for name in names if re.fullmatch(SessionIdConverter.regex, name)] == ["{id}"]
    assert all(re.fullmatch(SessionIdConverter.regex, text) for text in ("7", "newer", "rates"))


# Requests whose audit log fails, or that break off.


FULL = AuditUnavailable("write", OSError("full"))


def fail(*_: Any) -> None:
    raise FULL


class Service:
    """An application with one operation for admins, whose audit log is in memory."""

    def __init__(self, folder: Path, method: str) -> None:
        self.parts = UserServices(Settings(folder / "none", folder, b"-" * 32, folder, audit=folder))
        access = AccessReply(True, (ApiUser("admin", Role.ADMIN, "1"),))
        self.parts.core.check_access = lambda _, **__: access  # type: ignore[method-assign]
        self.recorded: list[AuditEntry] = []
        self.made = 0
        self.view: Callable[[], object] = lambda: None
        self.parts.audit.add = self.recorded.append  # type: ignore[method-assign]
        app, rows = create_app(self.parts), Blueprint("rows", __name__)
        rows.add_url_rule("/change", "change", operation(Access.ADMIN)(self._change), methods=[method])
        app.register_blueprint(rows)
        self.client: FlaskClient = app.test_client()

    def _change(self) -> Message:
        self.made += 1
        self.view()
        return Message("done")

    def send(self, method: str) -> int:
        token = self.parts.tokens.issue("admin", Role.ADMIN, "1", 60)
        headers = {"Authorization": f"Bearer {token}"}
        return self.client.open("/change", method=method, headers=headers).status_code


@pytest.mark.parametrize(("method", "status", "made"), [("POST", 500, 0), ("GET", 200, 1)])
def test_while_the_audit_log_cannot_be_written_an_admin_changes_nothing_and_reads_everything(
    tmp_path: Path, method: str, status: int, made: int
) -> None:
    service = Service(tmp_path, method)
    service.parts.audit.check = fail  # type: ignore[method-assign]
    assert (service.send(method), service.made) == (status, made)


def test_a_change_whose_record_cannot_be_written_is_answered_and_its_record_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(tmp_path, "POST")
    service.parts.audit.add = fail  # type: ignore[method-assign]
    assert (service.send("POST"), service.made) == (200, 1)
    (line,) = (each for each in caplog.records if each.levelno == logging.CRITICAL)
    assert "not in the audit log" in line.getMessage()
    assert '"action":"rows.change"' in str(vars(line))


def test_a_change_that_broke_off_is_kept_as_unanswered(tmp_path: Path) -> None:
    def stop() -> None:
        raise gevent.GreenletExit

    service = Service(tmp_path, "POST")
    service.view = stop
    with pytest.raises(gevent.GreenletExit):
        service.send("POST")
    (record,) = service.recorded
    assert (record.user, record.action, record.status) == ("admin", "rows.change", None)
    assert record.result == "unanswered"
