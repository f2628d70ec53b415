"""The way of a request, without a core: what may happen before its caller has access."""

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from flask import Response
from werkzeug.test import TestResponse

from gateway_api.base import durable
from gateway_api.base.errors import CoreUnavailable, NotFound
from gateway_api.base.settings import TOKEN, USERS, Profile, Settings
from gateway_api.web import app as application
from gateway_api.web import parse
from gateway_api.web.operation import Access, ApiOperation, Located, Passed, Routes, Tagged
from gateway_api.web.records import Message, SignedIn
from gateway_api.web.request import current
from gateway_api.web.services import UserProfileParts, WorkerParts
from gateway_api.wire.core.configuration import AccessReply, ApiUser, Role

both = pytest.mark.parametrize("profile", [USERS, TOKEN], ids=lambda profile: profile.name)


def parts(folder: Path, profile: Profile = USERS) -> WorkerParts:
    settings = Settings(folder / "none", folder, b"-" * 32, folder, audit=folder, profile=profile)
    return (UserProfileParts if profile is USERS else WorkerParts).from_settings(settings)


class Log:
    """What happened, in order."""

    def __init__(self) -> None:
        self.happened: list[str] = []

    def view(self, *_: Any) -> Message:
        self.happened.append("view")
        return Message("done")

    def read(self, core: Any) -> None:
        self.happened.append("read")


def respond(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    row: ApiOperation,
    role: Role = Role.OPERATOR,
    *,
    known: bool = True,
    path: str = "/row",
) -> TestResponse:
    """The response to a request with the token of a user whom the core knows or not."""
    services = parts(folder)
    assert isinstance(services, UserProfileParts)
    reply = AccessReply(True, (ApiUser("alice", role, "1"),) if known else ())
    services.daemon.check_access = lambda _: reply  # type: ignore[method-assign]
    monkeypatch.setitem(application.ROUTES, USERS, (Routes("rows", "", row),))
    headers = {"Authorization": f"Bearer {services.tokens.issue('alice', role, '1', 60)}"}
    headers["Accept-Encoding"] = "gzip"
    client = application.create_app(services).test_client()
    return client.open(path, method=row.method, headers=headers)


def status(*arguments: Any, **more: Any) -> int:
    return respond(*arguments, **more).status_code


@both
def test_a_row_has_an_access(profile: Profile, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="access"):
        ApiOperation("GET", "/row", lambda: None)  # type: ignore[call-arg]
    application.create_app(parts(tmp_path, profile))


@both
def test_what_is_no_row_is_not_served(
    profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = application.create_app(parts(tmp_path, profile))
    log = Log()
    app.add_url_rule("/aside", "aside", log.view)
    assert app.test_client().get("/aside").status_code == 500
    assert log.happened == []


@pytest.mark.parametrize("known", [True, False])
def test_a_view_runs_only_when_its_caller_has_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    log = Log()
    row = ApiOperation("GET", "/row", log.view, Access.ANY_ROLE)
    assert status(tmp_path, monkeypatch, row, known=known) == (200 if known else 401)
    assert log.happened == (["view"] if known else [])


def test_the_caller_is_known_also_where_the_core_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authors = []

    def view() -> Message:
        authors.append(current().user)
        return Message("done")

    row = ApiOperation("GET", "/row", view, Access.ANY_ROLE, without_core=True)
    assert status(tmp_path, monkeypatch, row, known=False) == 200
    assert authors == ["alice"]


def test_a_view_with_a_read_runs_only_when_its_caller_has_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A read that makes no call: the check is decided before the view.
    log = Log()
    row = ApiOperation("GET", "/row", log.view, Access.ADMIN, read=log.read)
    assert status(tmp_path, monkeypatch, row, known=True) == 403
    assert log.happened == ["read"]


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
    row = ApiOperation(method, "/row", log.view, access)
    assert status(tmp_path, monkeypatch, row, Role.ADMIN, known=True) == (500 if needs_the_log else 200)
    assert log.happened == ([] if needs_the_log else ["view"])


@pytest.mark.parametrize(("enabled", "expected"), [(True, [404, 405]), (False, [503, 503])])
def test_a_path_is_unknown_only_while_the_api_is_enabled(
    tmp_path: Path, enabled: bool, expected: list[int]
) -> None:
    services = parts(tmp_path)
    assert isinstance(services, UserProfileParts)
    services.daemon.check_access = lambda _: AccessReply(enabled, ())  # type: ignore[method-assign]
    client = application.create_app(services).test_client()
    answers = [client.get("/api/v1/nothing"), client.patch("/api/v1/system/version")]
    assert [answer.status_code for answer in answers] == expected


def test_the_core_is_asked_once_even_if_it_does_not_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = parts(tmp_path)
    asked = []

    def check_access(usernames: Any) -> AccessReply:
        asked.append(tuple(usernames))
        raise CoreUnavailable("no reply in time")

    services.daemon.check_access = check_access  # type: ignore[method-assign]

    def page() -> Response:
        return Response("")

    row = ApiOperation("GET", "/row", page, Access.STATIC)
    monkeypatch.setitem(application.ROUTES, USERS, (Routes("rows", "", row),))
    assert application.create_app(services).test_client().get("/row").status_code == 200
    assert asked == [()]


def test_who_is_refused_does_not_get_the_error_of_a_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(core: Any) -> None:
        raise NotFound("No such thing")

    row = ApiOperation("GET", "/row", Log().view, Access.ADMIN, read=read)
    assert status(tmp_path, monkeypatch, row, known=False) == 401
    assert status(tmp_path, monkeypatch, row, known=True) == 403
    assert status(tmp_path, monkeypatch, row, Role.ADMIN, known=True) == 404


MESSAGE = {"message": "done"}


@pytest.mark.parametrize(
    ("returned", "fields", "code", "body", "headers"),
    [
        (Message("done"), {}, 200, {"status": "ok", "data": MESSAGE}, {}),
        (Message("done"), {"bare": True}, 200, MESSAGE, {}),
        (Message("done"), {"status": 202, "preview": Message}, 200, {"status": "ok", "data": MESSAGE}, {}),
        (Message("done"), {"status": 202, "preview": SignedIn}, 202, {"status": "ok", "data": MESSAGE}, {}),
        (Tagged(Message("done"), "7"), {"bare": True}, 200, MESSAGE, {"ETag": '"7"'}),
        (Located(Message("done"), "/row/7"), {"bare": True}, 200, MESSAGE, {"Location": "/row/7"}),
        (Tagged(Passed(msgspec.Raw(b"{}")), "7"), {"bare": True}, 200, {}, {"ETag": '"7"'}),
        (Response("{}", 418), {}, 418, {}, {}),
    ],
)
def test_a_response_has_what_the_view_returned(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    returned: Any,
    fields: dict[str, Any],
    code: int,
    body: Any,
    headers: dict[str, str],
) -> None:
    row = ApiOperation("POST", "/row", lambda: returned, Access.ANY_ROLE, **fields)
    response = respond(tmp_path, monkeypatch, row)
    assert (response.status_code, msgspec.json.decode(response.data)) == (code, body)
    assert {name: response.headers.get(name) for name in ("ETag", "Location")} == {
        "ETag": None,
        "Location": None,
        **headers,
    }


@pytest.mark.parametrize("compressed", [True, False])
def test_a_response_is_compressed_where_its_row_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compressed: bool
) -> None:
    def view() -> Message:
        return Message("long" * 10_000)

    row = ApiOperation("GET", "/row", view, Access.ANY_ROLE, compressed=compressed)
    response = respond(tmp_path, monkeypatch, row)
    assert response.headers.get("Content-Encoding") == ("gzip" if compressed else None)


@pytest.mark.parametrize(("access", "code"), [(Access.OPEN, 200), (Access.ANY_ROLE, 400)])
def test_a_view_gets_the_variables_of_its_path_and_no_unknown_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, access: Access, code: int
) -> None:
    taken: list[Any] = []

    def view(**variables: Any) -> Message:
        taken.append(variables)
        return Message("done")

    row = ApiOperation("GET", "/row/<name>", view, access)
    assert status(tmp_path, monkeypatch, row, path="/row/eth1") == 200
    assert status(tmp_path, monkeypatch, row, path="/row/eth1?other=1") == code
    assert taken == [{"name": "eth1"}] * (2 if code == 200 else 1)


def one() -> Tagged[Passed[Message]]: ...


def two() -> SignedIn | Located[Message]: ...


def none() -> Tagged[None]: ...


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
    row = ApiOperation("GET", "/row", view, Access.OPEN)
    assert (row.records, row.headers) == (records, headers)


@both
def test_a_host_that_is_no_name_is_refused(profile: Profile, tmp_path: Path) -> None:
    client = application.create_app(parts(tmp_path, profile)).test_client()
    path = "/api/v1/subscribers"
    assert client.get(path, headers={"Host": "a..b"}).status_code == 400
    assert client.get(path, headers={"Host": "LOCALHOST:8443"}).status_code != 400


@both
def test_a_request_for_a_websocket_gets_the_response_of_any_other(profile: Profile, tmp_path: Path) -> None:
    client = application.create_app(parts(tmp_path, profile)).test_client()
    path = "/api/v1/vlans" if profile is TOKEN else "/api/v1/system/version"
    for method in ("GET", "PATCH"):
        plain = client.open(path, method=method)
        answer = client.open(path, method=method, headers={"Connection": "Upgrade", "Upgrade": "websocket"})
        assert (answer.status_code, answer.data) == (plain.status_code, plain.data)
        assert answer.headers.get("Allow") == plain.headers.get("Allow")
        assert answer.status_code not in (400, 500)


def test_a_name_in_the_place_of_a_session_is_no_session() -> None:
    paths = ["/subscribers/<session:id>", "/subscribers/<session:id>/rate", "/subscribers/new/rate", "/other"]
    pattern = parse.session_segment(paths).regex
    assert [bool(re.fullmatch(pattern, text)) for text in ("7", "newer", "other", "rate", "new")] == [
        *(True, True, True, True),
        False,
    ]
