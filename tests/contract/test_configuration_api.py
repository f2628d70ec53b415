"""The configuration's workflow over HTTPS: against a stack of its own, whose processes may be killed."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
import requests

from gateway_api.base.texts import rate_text
from tests.support.documents import SECRET_HASH
from tests.support.stack import Api, core_of, descendants, running_stack, wait_for

CONFIG = "/system/config"
NOT_ADMIN = {"detail": "Admin role required"}
MASK = "********"
NO_IMPACT = {"services": [], "sessions_dropped": 0, "sessions": [], "sessions_held": 0}
EDITORS = 16

Running = tuple[Api, "subprocess.Popen[bytes]"]
T = TypeVar("T")

_numbers = count(1)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_stack(tmp_path_factory.mktemp("workflow"), sessions=5) as running:
        yield running


@pytest.fixture
def stack(running: Running) -> Iterator[Api]:
    """An API with nothing staged and no commit that waits; so it is again at the test's end."""
    api, _ = running
    yield api
    post(api, "confirm")
    done(post(api, "discard"))


class Another(Api):
    """The same API for the same users, on connections of its own."""

    def __init__(self, api: Api) -> None:
        super().__init__(api.environment)
        self._tokens = api._tokens


def post(api: Api, step: str, body: Any = None, **more: Any) -> requests.Response:
    if body is not None:
        more["json"] = body
    return api.send(method_of(step), f"{CONFIG}/{step}", **more)


def method_of(step: str) -> str:
    return "PUT" if step == "candidate" else "POST"


def done(answer: requests.Response) -> Any:
    """The data of an answer that must be a success."""
    assert answer.status_code == 200, answer.text
    assert set(answer.json()) == {"status", "data"}
    assert answer.json()["status"] == "ok"
    return answer.json()["data"]


def refused(answer: requests.Response, status: int) -> list[str]:
    """The paths of what is wrong, of an answer that must be this error."""
    assert answer.status_code == status, answer.text
    document = answer.json()
    assert document["status"] == "error"
    assert document["message"]
    assert set(document) <= {"status", "message", "errors"}
    problems = document.get("errors", [])
    assert all(set(problem) == {"path", "code", "message"} for problem in problems)
    return [problem["path"] for problem in problems]


def stage(api: Api, path: str, value: Any, **more: Any) -> requests.Response:
    return post(api, "set", {"path": path, "value": value}, **more)


def a_name() -> str:
    """A host name that nobody had."""
    return f"host{next(_numbers)}"


def stage_a_name(api: Api) -> str:
    """Stages a host name that nobody had."""
    name = a_name()
    done(stage(api, "system.hostname", name))
    return name


def commit(api: Api, **body: Any) -> Any:
    return done(post(api, "commit", body))


def commit_a_name(api: Api, **body: Any) -> str:
    """Has a host name run that nobody had."""
    name = stage_a_name(api)
    assert commit(api, **body)["committed"]
    return name


def running_name(api: Api) -> Any:
    return api.get(CONFIG)["system"]["hostname"]


def candidate(api: Api) -> Any:
    return api.get(f"{CONFIG}/candidate", "admin")


def compared(api: Api, **query: Any) -> list[str]:
    """The lines between what runs, or an archived revision, and the candidate."""
    text: str = api.get(f"{CONFIG}/compare", "admin", params=query)["diff"]
    return text.splitlines()


def tag(api: Api) -> str:
    return api.send("GET", CONFIG).headers["ETag"]


def archive(api: Api) -> list[dict[str, Any]]:
    listed = api.get(f"{CONFIG}/archive")
    assert listed["count"] == len(listed["revisions"])
    revisions: list[dict[str, Any]] = listed["revisions"]
    return revisions


def wait_until_after(deadline: int) -> None:
    """Long enough after a deadline that what was to happen then has happened."""
    wait_for("the deadline to be over", lambda: time.time() > deadline + 0.3)


def at_once(api: Api, work: Callable[[Api, int], T]) -> list[T]:
    """What comes of several editors' work who begin at the same moment, each on a connection of its own."""
    api.token("admin")
    together = threading.Barrier(EDITORS)

    def edit(number: int) -> T:
        another = Another(api)
        with another.session:
            # The handshake, or they would come one after the other.
            another.get("/health", None)
            together.wait(30)
            return work(another, number)

    with ThreadPoolExecutor(EDITORS) as pool:
        return list(pool.map(edit, range(EDITORS)))


def answers(api: Api) -> bool:
    with suppress(requests.ConnectionError):
        return api.send("GET", "/health", None).ok
    return False


def kill_core(running: Running) -> None:
    """Returns when another one answers."""
    api, process = running
    before = core_of(process)
    os.kill(before, signal.SIGKILL)

    def another() -> bool:
        with suppress(OSError, ValueError):
            return core_of(process) != before
        return False

    wait_for("another core", another)
    wait_for("the core to answer", lambda: answers(api))


def kill_workers(running: Running) -> None:
    """All of them. Returns when others answer."""
    api, process = running
    gunicorn = [
        pid
        for pid in descendants(process.pid)
        if b"gunicorn" in Path(f"/proc/{pid}/cmdline").read_bytes() and descendants(pid)
    ]
    (arbiter,) = gunicorn
    before = set(descendants(arbiter))
    assert len(before) == 2
    for worker in before:
        os.kill(worker, signal.SIGKILL)
    wait_for("two other workers", lambda: len(set(descendants(arbiter)) - before) == 2)
    wait_for("the workers to answer", lambda: answers(api))


# Stage, look, commit


def test_a_value_that_is_set_is_in_the_candidate_and_does_not_run(stack: Api) -> None:
    before = running_name(stack)
    name = a_name()
    assert done(stage(stack, "system.hostname", name)) is None
    assert candidate(stack)["system"]["hostname"] == name
    assert running_name(stack) == before


def test_the_comparison_has_a_line_for_what_goes_and_one_for_what_comes(stack: Api) -> None:
    before = running_name(stack)
    name = stage_a_name(stack)
    assert compared(stack) == [f'- system.hostname = "{before}"', f'+ system.hostname = "{name}"']


def test_without_changes_the_comparison_is_empty(stack: Api) -> None:
    assert compared(stack) == []


def test_a_key_that_is_deleted_is_gone_from_the_candidate_only(stack: Api) -> None:
    assert done(post(stack, "delete", {"path": "bgp"})) is None
    assert "bgp" not in candidate(stack)
    assert "bgp" in stack.get(CONFIG)


def test_a_commit_says_all_that_there_is_to_say(stack: Api) -> None:
    stage_a_name(stack)
    began = int(time.time())
    said = commit(stack, comment="a new name")
    assert isinstance(said.pop("message"), str)
    assert began - 1 <= said.pop("committed_at") <= time.time() + 1
    assert said == {
        "committed": True,
        "changes": 1,
        "archived_revision": 1,
        "author": "admin",
        "comment": "a new name",
        "confirm_deadline": None,
        "impact": NO_IMPACT,
    }


def test_a_commit_runs_the_candidate_and_leaves_nothing_staged(stack: Api) -> None:
    name = commit_a_name(stack)
    assert running_name(stack) == name
    assert compared(stack) == []


def test_a_commit_counts_the_values_that_changed(stack: Api) -> None:
    stage_a_name(stack)
    done(stage(stack, "demux.idle_timeout", 100 + next(_numbers)))
    assert commit(stack)["changes"] == 2


def test_a_commit_without_a_body_is_one_without_a_comment(stack: Api) -> None:
    name = stage_a_name(stack)
    said = done(post(stack, "commit"))
    assert (said["committed"], said["comment"]) == (True, None)
    assert running_name(stack) == name


@pytest.mark.parametrize(
    "body", [{}, {"comment": None}, {"confirm_seconds": None}, {"max_sessions_dropped": None}]
)
def test_a_commit_takes_a_body_that_says_nothing(stack: Api, body: dict[str, Any]) -> None:
    stage_a_name(stack)
    said = done(post(stack, "commit", body))
    assert (said["committed"], said["comment"], said["confirm_deadline"]) == (True, None, None)


def test_with_nothing_to_commit_nothing_is_committed_and_that_is_no_error(stack: Api) -> None:
    commit_a_name(stack, comment="the last one")
    known = archive(stack)
    said = commit(stack, comment="another")
    assert (said["committed"], said["changes"], said["archived_revision"]) == (False, 0, None)
    assert (said["author"], said["comment"]) == ("admin", "the last one")
    assert archive(stack) == known


def test_a_value_that_is_set_to_what_runs_is_nothing_to_commit(stack: Api) -> None:
    done(stage(stack, "system.hostname", running_name(stack)))
    assert commit(stack)["committed"] is False


def test_the_author_of_a_commit_is_who_called(stack: Api) -> None:
    user = {"password_hash": SECRET_HASH, "role": "admin"}
    done(stage(stack, "api.users.alice", user))
    commit(stack)
    token = stack.log_in("alice", "secret").json()["access_token"]
    stage_a_name(stack)
    said = done(post(stack, "commit", {"comment": "by another"}, token=token))
    assert said["author"] == "alice"
    done(post(stack, "delete", {"path": "api.users.alice"}))
    commit(stack)
    newest = archive(stack)[0]
    assert (newest["author"], newest["comment"]) == ("alice", "by another")


def test_a_discard_drops_what_is_staged(stack: Api) -> None:
    stage_a_name(stack)
    assert done(post(stack, "discard")) is None
    assert compared(stack) == []
    assert candidate(stack) == stack.get(CONFIG)


def test_a_discard_with_nothing_staged_is_fine(stack: Api) -> None:
    assert done(post(stack, "discard")) is None


def test_all_editors_share_one_candidate(stack: Api) -> None:
    name = stage_a_name(stack)
    another = Another(stack)
    with another.session:
        assert candidate(another)["system"]["hostname"] == name


# Values and paths


@pytest.mark.parametrize(
    ("path", "value", "stored"),
    [
        ("demux.idle_timeout", "77", 77),
        ("cgnat.enabled", False, False),
        ("interfaces.trunks", '["trunk0","trunk1","trunk2"]', ["trunk0", "trunk1", "trunk2"]),
        ("demux.rate_limits", {"burst": 5}, {"burst": 5}),
    ],
)
def test_a_value_may_be_text_or_json(stack: Api, path: str, value: Any, stored: Any) -> None:
    done(stage(stack, path, value))
    held = candidate(stack)
    for name in path.split("."):
        held = held[name]
    assert held == stored
    assert type(held) is type(stored)


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("interfaces.trunks.2", "trunk0.9", '+ interfaces.trunks = ["trunk0","trunk1","trunk0.9"]'),
        ('bgp.neighbors."10.255.0.2".remote_as', "65000", '+ bgp.neighbors."10.255.0.2".remote_as = 65000'),
        ("api.users.operator.role", "admin", '+ api.users.operator.role = "admin"'),
        ("demux.vlan_profiles.0.type", "dhcp", '+ demux.vlan_profiles.pppoe.type = "dhcp"'),
    ],
)
def test_a_path_leads_into_lists_by_index_and_by_key(stack: Api, path: str, value: str, line: str) -> None:
    done(stage(stack, path, value))
    assert [shown for shown in compared(stack) if shown.startswith("+")] == [line]


def test_an_unknown_path_is_refused_when_it_is_set(stack: Api) -> None:
    for path in (
        "nope",
        'bgp.neighbors."10.255.0.2".nope',
    ):
        before = tag(stack)
        named = refused(stage(stack, path, "x"), 400)
        assert named[0].startswith(path)
        assert tag(stack) == before


def test_what_is_no_path_is_refused(stack: Api) -> None:
    for path in (
        "",
        "system hostname",
        "x" * 513,
    ):
        for step in ("set", "delete"):
            before = tag(stack)
            value = {"value": "x"} if step == "set" else {}
            assert refused(post(stack, step, {"path": path, **value}), 400) == ["path"]
            assert tag(stack) == before


def test_a_number_that_is_an_index_and_a_key_changes_nobody(stack: Api) -> None:
    local = [{"username": name, "password": f"pw-{name}"} for name in ("2", "7", "1")]
    done(stage(stack, "subscribers.local", local))
    before = tag(stack)
    for step, more in (("set", {"value": "x"}), ("delete", {})):
        answer = post(stack, step, {"path": "subscribers.local.1.password", **more})
        assert refused(answer, 400) == ["subscribers.local.1.password"]
        assert 'subscribers.local."1"' in answer.json()["message"]
        assert 'subscribers.local."7"' in answer.json()["message"]
        assert tag(stack) == before


def test_an_edit_answers_with_the_paths_by_the_keys_of_items(stack: Api) -> None:
    operations = [
        {"op": "set", "path": "api.users.1.role", "value": "admin"},
        {"op": "delete", "path": "bgp.neighbors.0"},
    ]
    paths = ["api.users.operator.role", 'bgp.neighbors."10.255.0.2"']
    assert done(post(stack, "edit", {"operations": operations})) == {"paths": paths}


def test_a_path_that_has_lost_its_quotes_gets_a_hint(stack: Api) -> None:
    path = "bgp.neighbors.10.255.0.2.password"
    hint = "; a key with dots or digits needs quotes, and a shell removes them: 'bgp.neighbors.\"KEY\"'"
    answer = stage(stack, path, "x")
    refused(answer, 400)
    assert answer.json()["message"] == f"{path}: is not a known path{hint}"
    answer = post(stack, "delete", {"path": path})
    refused(answer, 404)
    assert answer.json()["message"] == f"The candidate has no {path}{hint}"


def test_null_in_letters_is_no_password(stack: Api) -> None:
    path = 'bgp.neighbors."10.255.0.2".password'
    before = tag(stack)
    for text in ("null", "None", "~", ""):
        answer = stage(stack, path, text)
        assert refused(answer, 400) == [path]
        assert answer.json()["message"].endswith(": delete removes it")
    document = candidate(stack)
    document["bgp"]["neighbors"][0]["password"] = "null"
    assert refused(post(stack, "candidate", document), 400) == [path]
    assert tag(stack) == before
    assert done(stage(stack, path, None)) is None


def test_a_wrong_value_is_refused_when_it_is_set(stack: Api) -> None:
    for path, value in (
        ("system.hostname", "-bad-"),
        ("system", {"nope": 1}),
        ("demux.idle_timeout", 0),
        ("interfaces.trunks", ["trunk 0"]),
        ("api.users.admin.role", "root"),
        ("api.users.admin.password_hash", "secret"),
    ):
        before = tag(stack)
        named = refused(stage(stack, path, value), 400)
        assert all(name.startswith(path) for name in named)
        assert named
        assert tag(stack) == before


def test_a_rate_that_has_lost_its_unit_is_refused_wherever_a_rate_is_taken(stack: Api) -> None:
    session = stack.get("/subscribers", params={"limit": 1})["sessions"][0]
    shown, edit = candidate(stack), {"op": "set", "path": "qos.default_up", "value": "10"}
    shown["qos"]["default_down"] = "50"
    for method, path, body, place, rate in (
        ("PUT", f"/subscribers/{session['id']}/rate", {"rate_down": "50"}, "rate_down", 50),
        ("POST", "/subscribers/rate", {"filter": {"type": "pppoe"}, "rate_up": "10bit"}, "rate_up", 10),
        ("POST", f"{CONFIG}/set", {"path": "qos.default_down", "value": "7999"}, "qos.default_down", 7999),
        ("POST", f"{CONFIG}/edit", {"operations": [edit]}, "operations.0.qos.default_up", 10),
        ("PUT", f"{CONFIG}/candidate", shown, "qos.default_down", 50),
    ):
        answer = stack.send(method, path, json=body)
        assert refused(answer, 400) == [place]
        (problem,) = answer.json()["errors"]
        assert problem["message"] == f"must be at least 8 kbit/s, not {rate_text(rate)}: is the unit missing?"
    assert compared(stack) == []
    assert stack.get(f"/subscribers/{session['id']}")["rate_down_bps"] == session["rate_down"]


@pytest.mark.parametrize(
    "path",
    ["radius.server_name", "subscribers", "bgp.neighbors.5", 'bgp.neighbors."10.9.9.9"', "api.users.ghost"],
)
def test_what_is_not_there_cannot_be_deleted(stack: Api, path: str) -> None:
    before = tag(stack)
    assert refused(post(stack, "delete", {"path": path}), 404) == []
    assert tag(stack) == before


def test_a_field_that_is_missing_unknown_or_wrong_is_named(stack: Api) -> None:
    for step, body, path in (
        ("set", {}, "path"),
        ("set", {"path": "system.hostname"}, "value"),
        ("set", {"path": 5, "value": "x"}, "path"),
        ("set", {"path": "system.hostname", "value": "x", "comment": "x"}, "comment"),
        ("delete", {}, "path"),
        ("delete", {"path": "bgp", "value": "x"}, "value"),
        ("edit", {}, "operations"),
        ("edit", {"operations": []}, "operations"),
        ("edit", {"operations": "set"}, "operations"),
        ("edit", {"operations": [{"op": "move", "path": "bgp"}]}, "operations.0.op"),
        ("edit", {"operations": [{"op": "set", "path": "bgp"}]}, "operations.0.value"),
        ("edit", {"operations": [{"op": "delete", "path": "bgp", "value": 1}]}, "operations.0.value"),
        ("edit", {"operations": [{"op": "delete", "path": "bgp"}] * 1001}, "operations"),
        ("commit", {"remark": "x"}, "remark"),
        ("commit", {"comment": 5}, "comment"),
        ("rollback", {}, "revision"),
        ("rollback", {"revision": "1"}, "revision"),
        ("rollback", {"revision": True}, "revision"),
        ("rollback", {"revision": 1.5}, "revision"),
        ("rollback", {"revision": None}, "revision"),
    ):
        stage_a_name(stack)
        before = tag(stack)
        assert path in refused(post(stack, step, body), 400)
        assert tag(stack) == before


@pytest.mark.parametrize("step", ["set", "delete", "edit", "candidate", "commit", "rollback"])
def test_a_body_that_is_no_object_is_refused(stack: Api, step: str) -> None:
    for body in (b"null", b"[]", b'"x"', b"{", b"\xff", b"NaN", b" "):
        stage_a_name(stack)
        before = tag(stack)
        refused(post(stack, step, data=body), 400)
        assert tag(stack) == before


# What makes JSON parsers fall over

BITES = {
    "a lone surrogate": r'"\ud800"',
    "a surrogate the wrong way round": r'"\udc00\ud800"',
    "a lone surrogate in a text in a text": r'"[\"\\ud800\"]"',
    "20,000 lists that end": "[" * 20_000 + "]" * 20_000,
    "20,000 lists that don't": "[" * 20_000,
    "400,000 lists": "[" * 400_000 + "]" * 400_000,
    "20,000 objects": '{"a":' * 20_000 + "1" + "}" * 20_000,
    "20,000 lists in a text": '"' + "[" * 20_000 + "]" * 20_000 + '"',
    "20,000 objects in a text": '"' + r"{\"a\":" * 20_000 + "1" + "}" * 20_000 + '"',
    "an object for each of its keys": '{"system":{"system":{"system":{"hostname":"x"}}}}',
    "a number beyond all doubles": "1e400",
    "a number below all doubles in a text": '"-1e400"',
    "infinity": "Infinity",
    "minus nothing": "-",
    "20 digits": "9" * 20,
    "5,000 digits": "9" * 5_000,
    "5,000 digits in a text": '"' + "9" * 5_000 + '"',
    "a number with 900,000 digits": "9" * 900_000,
    "true": "true",
    "null": "null",
    "a NUL": r'"\u0000"',
    "a text of 900 KB": '"' + "x" * 900_000 + '"',
    "a text of 900 KB of two bytes each": '"' + "é" * 450_000 + '"',
    "quotes, twice as long when quoted again": '"' + r"\"" * 450_000 + '"',
    "ends of lines, longer when quoted again": '"' + r"\n" * 450_000 + '"',
    "control characters, longer when quoted again": '"' + r"\u0001" * 150_000 + '"',
    "a body of almost 1 MiB": '"' + "x" * ((1 << 20) - 50) + '"',
    "a body of over 1 MiB": '"' + "x" * (1 << 20) + '"',
}
PLACES = ("demux.idle_timeout", "interfaces.trunks", "system.hostname", "demux")


@pytest.mark.parametrize("path", PLACES)
def test_no_value_harms_anybody(running: Running, stack: Api, path: str) -> None:
    for value in BITES.values():
        core, before = core_of(running[1]), tag(stack)
        head = f'{{"path":"{path}","value":'
        answer = post(stack, "set", data=f"{head}{value}}}".encode())
        assert answer.status_code in (400, 413), answer.text[:500]
        assert answer.json()["status"] == "error"
        assert tag(stack) == before
        assert core_of(running[1]) == core


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_a_value_that_is_nested_as_deep_as_python_goes_is_refused(
    stack: Api, opening: str, closing: str
) -> None:
    before = tag(stack)
    statuses = set()
    # Where exactly the interpreter gives up depends on the caller: all depths around its limit of 1000.
    for depth in (*range(100, 900, 200), *range(930, 1010), *range(1100, 2100, 300)):
        value = opening * depth + "1" + closing * depth
        set_nested = f'{{"path":"demux.vlan_profiles","value":{value}}}'
        set_text = f'{{"path":"demux.vlan_profiles","value":{json.dumps(value)}}}'
        edit = f'{{"operations":[{{"op":"set","path":"demux","value":{value}}}]}}'
        for step, body in (("set", set_nested), ("set", set_text), ("edit", edit)):
            statuses.add(post(stack, step, data=body).status_code)
    assert statuses == {400}
    assert tag(stack) == before


@pytest.mark.parametrize(
    ("path", "item"), [("interfaces.trunks", "1"), ("subscribers.local", "{}"), ("demux.trunks", '""')]
)
def test_a_value_with_a_fault_in_each_of_its_items_gets_a_short_answer(
    stack: Api, path: str, item: str
) -> None:
    value = ",".join([item] * 20_000)
    answer = post(stack, "set", data=f'{{"path":"{path}","value":[{value}]}}')
    named = refused(answer, 400)
    assert all(name.startswith(path) for name in named)
    assert len(answer.content) < 100_000


def test_a_candidate_cannot_grow_without_end(stack: Api) -> None:
    local = [{"username": f"user{n}", "password": "x" * 128} for n in range(4_000)]
    neighbors = [
        {"address": f"10.{n // 256}.{n % 256}.1", "remote_as": 1, "description": "x" * 80}
        for n in range(4_000)
    ]
    done(stage(stack, "subscribers", {"local": local}))
    before = tag(stack)
    refused(stage(stack, "bgp.neighbors", neighbors), 400)
    assert tag(stack) == before


# Commits that don't come about


def test_a_commit_of_what_does_not_hold_names_every_place_and_keeps_the_candidate(stack: Api) -> None:
    name = stage_a_name(stack)
    done(stage(stack, "demux.trunks", ["trunk7"]))
    done(post(stack, "delete", {"path": "cgnat.vrf_table"}))
    done(stage(stack, "radius.server", "192.0.2.1"))
    done(post(stack, "delete", {"path": "radius.secret"}))
    before, runs, known = tag(stack), stack.get(CONFIG), archive(stack)
    named = refused(post(stack, "commit"), 400)
    assert {"cgnat.vrf_table", "radius.secret"} <= set(named)
    assert (tag(stack), stack.get(CONFIG), archive(stack)) == (before, runs, known)
    assert candidate(stack)["system"]["hostname"] == name
    assert candidate(stack)["demux"]["trunks"] == ["trunk7"]


def test_a_refused_commit_names_an_item_by_its_key(stack: Api) -> None:
    local = [{"username": name, "password": "pw", "ip_address": "100.64.0.9"} for name in ("2", "7")]
    done(stage(stack, "subscribers.local", local))
    assert refused(post(stack, "commit"), 400) == ['subscribers.local."7".ip_address']


@pytest.mark.parametrize(
    ("path", "value", "broken"),
    [
        ("demux.trunks", ["trunk7"], "demux.trunks"),
        ("cgnat.handoff_interface", "cgnat7", "cgnat.handoff_interface"),
        ("demux.vlan_profiles.pppoe.vlan_range", "4000", None),
        ("api.users.admin.role", "operator", "api.users"),
        ("interfaces.uplinks", ["trunk0", "cgnat0"], "interfaces.uplinks"),
    ],
)
def test_rules_between_values_count_at_the_commit(
    stack: Api, path: str, value: Any, broken: str | None
) -> None:
    done(stage(stack, path, value))
    answer = post(stack, "commit", {"confirm_seconds": 60})
    if broken is None:
        assert done(answer)["committed"]
        done(post(stack, "rollback", {"revision": 1}))
        commit(stack)
    else:
        assert refused(answer, 400) == [broken]


def test_what_was_refused_at_the_commit_can_be_mended(stack: Api) -> None:
    done(stage(stack, "demux.trunks", ["trunk7"]))
    name = stage_a_name(stack)
    refused(post(stack, "commit"), 400)
    done(stage(stack, "demux.trunks", ["trunk0", "trunk1"]))
    assert commit(stack)["changes"] == 1
    assert running_name(stack) == name


@pytest.mark.parametrize("seconds", [0, -1, 86_401, 1 << 70, "5", True, 1.5])
def test_the_time_to_confirm_is_an_integer_up_to_a_day(stack: Api, seconds: Any) -> None:
    stage_a_name(stack)
    before = tag(stack)
    assert refused(post(stack, "commit", {"confirm_seconds": seconds}), 400) == ["confirm_seconds"]
    assert tag(stack) == before


@pytest.mark.parametrize("most", [-1, 1 << 31, 1 << 70, "5", True, 1.5])
def test_the_most_sessions_that_a_commit_may_end_is_a_number(stack: Api, most: Any) -> None:
    stage_a_name(stack)
    before = tag(stack)
    assert refused(post(stack, "commit", {"max_sessions_dropped": most}), 400) == ["max_sessions_dropped"]
    assert tag(stack) == before


@pytest.mark.parametrize(
    "comment",
    ["x" * 257, "two\nlines", "two\r\nlines", "a\ttab", "\x00", "\x1b[31mred", "\x7f", "\u2028", "\u202e"],
)
def test_a_comment_is_one_line_that_cannot_disturb_a_terminal(stack: Api, comment: str) -> None:
    stage_a_name(stack)
    before = tag(stack)
    assert refused(post(stack, "commit", {"comment": comment}), 400) == ["comment"]
    assert tag(stack) == before


@pytest.mark.parametrize("comment", ["", "x" * 256, "Grüße, 世界", '"<&>\\'])
def test_a_comment_is_kept_as_it_was_sent(stack: Api, comment: str) -> None:
    commit_a_name(stack, comment=comment)
    commit_a_name(stack)
    assert archive(stack)[0]["comment"] == comment


# Several edits at once


def test_an_edit_stages_all_of_its_operations_in_their_order(stack: Api) -> None:
    operations = [
        {"op": "set", "path": "system.hostname", "value": "first"},
        {"op": "delete", "path": "bgp"},
        {"op": "set", "path": "bgp", "value": {"as_number": 65001}},
        {"op": "set", "path": "bgp.router_id", "value": "10.1.1.1"},
        {"op": "set", "path": "system.hostname", "value": "last"},
    ]
    answer = done(post(stack, "edit", {"operations": operations}))
    assert answer == {"paths": [operation["path"] for operation in operations]}
    held = candidate(stack)
    assert held["system"]["hostname"] == "last"
    assert held["bgp"] == {"as_number": 65001, "router_id": "10.1.1.1"}


@pytest.mark.parametrize(
    ("failing", "path"),
    [
        ({"op": "set", "path": "demux.idle_timeout", "value": "soon"}, "demux.idle_timeout"),
        ({"op": "set", "path": "system.nope", "value": "x"}, "system.nope"),
        ({"op": "set", "path": "demux.rate_limits", "value": {"burst": 0}}, "demux.rate_limits.burst"),
        ({"op": "set", "path": "a b", "value": "x"}, "path"),
        ({"op": "set", "path": "radius.secret", "value": MASK}, "radius.secret"),
        ({"op": "delete", "path": "a b"}, "path"),
    ],
)
def test_an_edit_with_an_operation_that_fails_stages_none_and_names_it(
    stack: Api, failing: dict[str, Any], path: str
) -> None:
    before = tag(stack)
    fine = {"op": "set", "path": "system.hostname", "value": a_name()}
    named = refused(post(stack, "edit", {"operations": [fine, fine, failing, fine]}), 400)
    assert named == [f"operations.2.{path}"]
    assert tag(stack) == before


def test_an_edit_that_deletes_what_is_not_there_stages_none_and_names_it(stack: Api) -> None:
    before = tag(stack)
    operations = [
        {"op": "set", "path": "system.hostname", "value": a_name()},
        {"op": "delete", "path": "api.users.ghost"},
    ]
    answer = post(stack, "edit", {"operations": operations})
    refused(answer, 404)
    assert answer.json()["message"] == "operations.1: The candidate has no api.users.ghost"
    assert tag(stack) == before


# A whole candidate


def test_a_whole_candidate_takes_the_place_of_all_that_was_staged(stack: Api) -> None:
    before = running_name(stack)
    document = stack.get(CONFIG)
    stage_a_name(stack)
    done(stage(stack, "demux.idle_timeout", 4_321))
    name = document["system"]["hostname"] = a_name()
    assert done(post(stack, "candidate", document)) is None
    assert candidate(stack) == document
    assert compared(stack) == [f'- system.hostname = "{before}"', f'+ system.hostname = "{name}"']
    assert running_name(stack) == before


def test_a_candidate_as_it_is_shown_changes_nothing(stack: Api) -> None:
    stage_a_name(stack)
    done(stage(stack, "radius.secret", "a-new-secret"))
    before = tag(stack)
    done(post(stack, "candidate", candidate(stack)))
    assert tag(stack) == before


def test_a_masked_secret_of_a_whole_candidate_is_kept_with_its_item(stack: Api) -> None:
    document = candidate(stack)
    document["api"]["users"].reverse()
    document["qos"]["default_up"] = f"{next(_numbers)}mbit"
    done(post(stack, "candidate", document))
    assert commit(stack)["changes"] == 2
    stack.forget_tokens()
    password = stack.environment["OPERATOR_PASSWORD"]
    assert stack.log_in("operator", password).status_code == 200
    done(post(stack, "rollback", {"revision": 1}))
    commit(stack)


def test_a_mask_without_a_secret_in_the_candidate_is_refused_by_its_place(stack: Api) -> None:
    before = tag(stack)
    document = candidate(stack)
    document["api"]["users"][1]["username"] = "somebody"
    document["system"]["hostname"] = MASK
    named = refused(post(stack, "candidate", document), 400)
    assert sorted(named) == ["api.users.somebody.password_hash", "system.hostname"]
    assert tag(stack) == before


def test_each_value_of_a_whole_candidate_that_breaks_a_rule_is_named(stack: Api) -> None:
    before = tag(stack)
    document = candidate(stack)
    document["demux"]["idle_timeout"] = "soon"
    document["interfaces"]["trunks"].append("trunk 9")
    document["extra"] = {}
    answer = post(stack, "candidate", document)
    assert sorted(refused(answer, 400)) == ["demux.idle_timeout", "extra", "interfaces.trunks.2"]
    codes = {problem["path"]: problem["code"] for problem in answer.json()["errors"]}
    assert codes["extra"] == "unknown"
    assert tag(stack) == before


def test_a_whole_candidate_that_lacks_something_is_refused_at_the_commit(stack: Api) -> None:
    document = candidate(stack)
    del document["cgnat"]["vrf_table"]
    done(post(stack, "candidate", document))
    assert refused(post(stack, "commit"), 400) == ["cgnat.vrf_table"]
    assert candidate(stack) == document


def test_no_section_of_a_whole_candidate_harms_anybody(running: Running, stack: Api) -> None:
    core, before = core_of(running[1]), tag(stack)
    for value in BITES.values():
        answer = post(stack, "candidate", data=f'{{"demux":{value}}}'.encode())
        assert answer.status_code in (400, 413), answer.text[:500]
        assert answer.json()["status"] == "error"
    for depth in (50, 900, 940, 960, 970, 980, 985, 990, 995):
        for place in ("system", "nonsense"):
            nested = b'{"%s":' % place.encode() + b'{"hostname":' * depth + b"1" + b"}" * depth + b"}"
            assert post(stack, "candidate", data=nested).status_code == 400
    assert tag(stack) == before
    assert core_of(running[1]) == core


# The archive


def test_the_archive_lists_what_ran_before_with_who_and_why(stack: Api) -> None:
    began = time.time()
    commit_a_name(stack, comment="the one before")
    commit_a_name(stack, comment="the one that runs")
    newest = archive(stack)[0]
    assert set(newest) == {"revision", "committed_at", "author", "comment"}
    assert (newest["revision"], newest["author"], newest["comment"]) == (1, "admin", "the one before")
    assert began - 1 <= newest["committed_at"] <= time.time() + 1


def test_an_archived_revision_shows_the_configuration_as_it_ran(stack: Api) -> None:
    commit_a_name(stack, comment="older")
    before = stack.get(CONFIG)
    commit_a_name(stack)
    shown = stack.get(f"{CONFIG}/archive/1")
    assert set(shown) == {"revision", "committed_at", "author", "comment", "configuration"}
    assert (shown["revision"], shown["comment"]) == (1, "older")
    assert shown["configuration"] == before


def test_a_comparison_with_a_revision_is_from_there_to_the_candidate(stack: Api) -> None:
    first = commit_a_name(stack)
    commit_a_name(stack)
    last = stage_a_name(stack)
    assert compared(stack, revision=1) == [f'- system.hostname = "{first}"', f'+ system.hostname = "{last}"']


def test_a_rollback_stages_a_revision_and_says_how_much_would_change(stack: Api) -> None:
    old = commit_a_name(stack)
    new = commit_a_name(stack)
    said = done(post(stack, "rollback", {"revision": 1}))
    assert isinstance(said.pop("message"), str)
    assert said == {"revision": 1, "changes": 1}
    assert candidate(stack)["system"]["hostname"] == old
    assert running_name(stack) == new


def test_a_rollback_that_is_committed_runs_and_archives_what_ran(stack: Api) -> None:
    old = commit_a_name(stack)
    new = commit_a_name(stack)
    done(post(stack, "rollback", {"revision": 1}))
    assert commit(stack)["committed"]
    assert running_name(stack) == old
    assert stack.get(f"{CONFIG}/archive/1")["configuration"]["system"]["hostname"] == new


def test_a_rollback_takes_the_place_of_what_was_staged(stack: Api) -> None:
    commit_a_name(stack)
    commit_a_name(stack)
    done(stage(stack, "demux.idle_timeout", 4_321))
    done(post(stack, "rollback", {"revision": 1}))
    assert candidate(stack) == stack.get(f"{CONFIG}/archive/1")["configuration"]


@pytest.mark.parametrize("revision", [0, -1, 50, 999, 1 << 31, 1 << 70])
def test_a_rollback_to_no_revision_is_404(stack: Api, revision: int) -> None:
    stage_a_name(stack)
    before = tag(stack)
    assert refused(post(stack, "rollback", {"revision": revision}), 404) == []
    assert tag(stack) == before


@pytest.mark.parametrize("revision", ["abc", "0", "-1", "01", "1.0", "50", "999", "9" * 30, "%D9%A1"])
def test_an_archived_revision_that_is_none_is_404(stack: Api, revision: str) -> None:
    refused(stack.send("GET", f"{CONFIG}/archive/{revision}"), 404)


def test_revisions_are_compared_with_one_another_and_with_the_running_configuration(stack: Api) -> None:
    two, one, now = (commit_a_name(stack) for _ in range(3))

    def difference(before: str, after: str) -> list[str]:
        return [f'- system.hostname = "{before}"', f'+ system.hostname = "{after}"']

    assert compared(stack, revision=2, to=1) == difference(two, one)
    assert compared(stack, revision=1, to=0) == difference(one, now)
    assert compared(stack, to=2) == difference(now, two)
    assert compared(stack, revision=2, to=2) == []


def test_the_archive_has_the_commit_of_the_running_configuration(stack: Api) -> None:
    began = time.time()
    commit_a_name(stack, comment="the one that runs")
    running = stack.get(f"{CONFIG}/archive")["running"]
    assert (running["author"], running["comment"]) == ("admin", "the one that runs")
    assert began - 1 <= running["committed_at"] <= time.time() + 1


@pytest.mark.parametrize("revision", ["50", "999"])
def test_a_comparison_to_no_revision_is_404(stack: Api, revision: str) -> None:
    refused(stack.send("GET", f"{CONFIG}/compare", params={"to": revision}), 404)


@pytest.mark.parametrize("revision", ["0", "50", "999"])
def test_a_comparison_with_no_revision_is_404(stack: Api, revision: str) -> None:
    refused(stack.send("GET", f"{CONFIG}/compare", params={"revision": revision}), 404)


@pytest.mark.parametrize("query", [{"revision": "abc"}, {"revision": ""}, {"revision": "-1"}, {"rev": "1"}])
def test_a_comparison_with_a_bad_parameter_is_400(stack: Api, query: dict[str, str]) -> None:
    assert refused(stack.send("GET", f"{CONFIG}/compare", params=query), 400) == list(query)


# Entity tags

#: What changes something, with a body that works after a name was staged and one committed before.
CHANGES: dict[str, Any] = {
    "set": {"path": "system.hostname", "value": "never.seen"},
    "delete": {"path": "bgp"},
    "edit": {"operations": [{"op": "delete", "path": "bgp"}]},
    "candidate": {"system": {"hostname": "never.seen"}},
    "commit": {},
    "rollback": {"revision": 1},
    "discard": None,
}
each_change = pytest.mark.parametrize("step", CHANGES)


@pytest.fixture
def staged(stack: Api) -> Api:
    """An API with something staged and something archived."""
    commit_a_name(stack)
    stage_a_name(stack)
    return stack


def tags_now(api: Api) -> set[str]:
    paths = (CONFIG, f"{CONFIG}/candidate", f"{CONFIG}/compare", f"{CONFIG}/compare?revision=1")
    return {api.send("GET", path).headers["ETag"] for path in paths}


def matching(api: Api, step: str, if_match: str) -> requests.Response:
    return post(api, step, CHANGES[step], headers={"If-Match": if_match})


@each_change
def test_a_change_answers_with_the_new_tag_that_all_views_have(staged: Api, step: str) -> None:
    (before,) = tags_now(staged)
    answer = post(staged, step, CHANGES[step])
    done(answer)
    assert answer.headers["ETag"] != before
    assert tags_now(staged) == {answer.headers["ETag"]}


def test_without_a_change_the_tag_stays(staged: Api) -> None:
    before = tag(staged)
    done(stage(staged, "system.hostname", candidate(staged)["system"]["hostname"]))
    assert tag(staged) == before


def test_a_commit_of_nothing_answers_with_the_tag_as_it_was(stack: Api) -> None:
    before = tag(stack)
    assert post(stack, "commit").headers["ETag"] == before


def test_a_change_of_a_secret_changes_the_tag(stack: Api) -> None:
    done(stage(stack, "radius.secret", "one-secret"))
    before = tag(stack)
    done(stage(stack, "radius.secret", "another-secret"))
    assert tag(stack) != before


@each_change
def test_a_change_with_the_right_tag_is_done(staged: Api, step: str) -> None:
    before = tag(staged)
    answer = matching(staged, step, before)
    done(answer)
    assert answer.headers["ETag"] != before


@each_change
def test_a_change_with_one_right_tag_of_several_is_done(staged: Api, step: str) -> None:
    done(matching(staged, step, f'"0", {tag(staged)}, W/"1"'))


@each_change
def test_a_change_with_any_tag_is_done(staged: Api, step: str) -> None:
    done(matching(staged, step, "*"))


@each_change
def test_a_change_with_a_stale_tag_is_412_and_not_done(staged: Api, step: str) -> None:
    stale = tag(staged)
    name = stage_a_name(staged)
    before, runs, known = tag(staged), staged.get(CONFIG), archive(staged)
    answer = matching(staged, step, stale)
    assert refused(answer, 412) == []
    assert answer.headers["ETag"] == before
    assert (tag(staged), staged.get(CONFIG), archive(staged)) == (before, runs, known)
    assert candidate(staged)["system"]["hostname"] == name


@each_change
def test_a_weak_tag_never_matches(staged: Api, step: str) -> None:
    before = tag(staged)
    answer = matching(staged, step, f"W/{before}")
    refused(answer, 412)
    assert "has a weak entity tag (W/), which never matches" in answer.json()["message"]
    assert "a proxy may have made it weak" in answer.json()["message"]
    assert answer.headers["ETag"] == before
    assert tag(staged) == before


@pytest.mark.parametrize(
    "sent",
    ['""', '"0", ""', 'W/""', '"é"', '"0" , ,"1",', '"' + "x" * 6_000 + '"'],
)
def test_a_header_without_the_tag_in_it_matches_nothing(stack: Api, sent: str) -> None:
    before = tag(stack)
    headers: dict[str, Any] = {"If-Match": sent.encode("latin-1")}
    refused(stage(stack, "system.hostname", a_name(), headers=headers), 412)
    assert tag(stack) == before


# Several editors


def test_of_simultaneous_sets_none_is_lost(stack: Api) -> None:
    def work(api: Api, number: int) -> int:
        path = f"subscribers.local.user{number}"
        return stage(api, path, {"password": f"p{number}"}).status_code

    assert at_once(stack, work) == [200] * EDITORS
    held = {item["username"] for item in candidate(stack)["subscribers"]["local"]}
    assert held == {f"user{number}" for number in range(EDITORS)}


def test_of_simultaneous_sets_with_one_tag_exactly_one_is_done(stack: Api) -> None:
    seen = tag(stack)

    def work(api: Api, number: int) -> int:
        return stage(api, "system.hostname", f"racer{number}", headers={"If-Match": seen}).status_code

    statuses = at_once(stack, work)
    assert sorted(statuses) == [200] + [412] * (EDITORS - 1)
    assert candidate(stack)["system"]["hostname"] == f"racer{statuses.index(200)}"


def test_of_simultaneous_commits_with_one_tag_exactly_one_is_done(stack: Api) -> None:
    name = stage_a_name(stack)
    seen = tag(stack)
    statuses = at_once(stack, lambda api, number: post(api, "commit", headers={"If-Match": seen}).status_code)
    assert sorted(statuses) == [200] + [412] * (EDITORS - 1)
    assert running_name(stack) == name


def test_simultaneous_commits_make_as_many_revisions_as_they_say(stack: Api) -> None:
    run = a_name()

    def work(api: Api, number: int) -> str | None:
        comment = f"{run}-{number}"
        done(stage(api, f"subscribers.local.user{number}", {"password": f"p{number}"}))
        return comment if commit(api, comment=comment)["committed"] else None

    committed = {comment for comment in at_once(stack, work) if comment}
    runs = commit(stack)["comment"]
    archived = [r["comment"] for r in archive(stack) if (r["comment"] or "").startswith(f"{run}-")]
    assert sorted([*archived, runs]) == sorted(committed)
    assert len(stack.get(CONFIG)["subscribers"]["local"]) == EDITORS
    assert compared(stack) == []
    done(post(stack, "delete", {"path": "subscribers"}))
    commit(stack)


# Secrets


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("radius.secret", MASK),
        ("radius", {"server": None, "secret": MASK}),
        ("radius", f'{{"server":null,"secret":"{MASK}"}}'),
        ("api.users.admin.password_hash", MASK),
        ("api.users", [{"username": "admin", "password_hash": MASK, "role": "admin"}]),
        ("subscribers.local.someone.password", MASK),
    ],
)
def test_the_mask_is_no_value(stack: Api, path: str, value: Any) -> None:
    before = tag(stack)
    (named,) = refused(stage(stack, path, value), 400)
    assert named.startswith(path)
    assert tag(stack) == before


def test_a_configuration_as_it_is_shown_cannot_take_the_secrets_away(stack: Api) -> None:
    before = tag(stack)
    refused(stage(stack, "api", stack.get(CONFIG)["api"]), 400)
    assert tag(stack) == before


def test_no_answer_and_no_line_of_the_log_has_a_secret(stack: Api) -> None:
    marks = ("s3cret-one", "s3cret-two")
    answers = []

    def keep(answer: requests.Response) -> None:
        answers.append(answer)

    def look() -> None:
        for path in ("", "/candidate", "/compare", "/compare?revision=1", "/archive", "/archive/1"):
            keep(stack.send("GET", CONFIG + path))

    for mark in marks:
        keep(stage(stack, "radius.secret", mark))
        keep(stage(stack, "radius", {"server": "192.0.2.1", "secret": f"{mark}-object"}))
        keep(stage(stack, "radius", f'{{"server":"192.0.2.1","secret":"{mark}-text"}}'))
        keep(stage(stack, "subscribers.local", [{"username": "someone", "password": f"{mark}-local"}]))
        keep(stage(stack, "subscribers.local.monkey.password", f"{mark}-monkey"))
        keep(stage(stack, "api.users.secret", {"password_hash": SECRET_HASH, "role": "operator"}))
        look()
        radius = {"server": "192.0.2.1", "secret": f"{mark}-whole"}
        keep(post(stack, "candidate", {**candidate(stack), "radius": radius}))
        look()
        keep(post(stack, "commit", {"comment": "secrets"}))
        look()
    staged = len(answers)
    assert {answer.status_code for answer in answers} == {200}
    for path, value in (
        ("radius.secret", f"{marks[0]} with blanks"),
        ("radius.secret", [marks[0]]),
        ("radius.secret", {marks[0]: 1}),
        ("radius", marks[0]),
        ("radius", {"secret": f"{marks[0]},"}),
        ("radius", f'{{"secret":"{marks[0]},"}}'),
        ("radius", f'{{"secret":"{marks[0]}'),
        ("system.hostname", {"secret": marks[0]}),
        ("subscribers.local", [{"password": marks[0]}]),
        ("subscribers.local", f'[{{"password":"{marks[0]}"}}]'),
        ("subscribers.local.someone.password", f"{marks[0]}\n"),
        ("subscribers.local.new", {"password": marks[0], "nope": marks[1]}),
        ("api.users.admin.password_hash", marks[0]),
        ("api.users.admin.password_hash", f"{SECRET_HASH}x"),
        ("api.users", [{"password_hash": SECRET_HASH}]),
        ("api.token", marks[0]),
    ):
        keep(stage(stack, path, value))
        keep(post(stack, "edit", {"operations": [{"op": "set", "path": path, "value": value}]}))
    for radius in (marks[0], {"secret": f"{marks[0]},"}, {"secrt": marks[0]}, {"secret": [marks[0]]}):
        keep(post(stack, "candidate", {**candidate(stack), "radius": radius}))
    assert {answer.status_code for answer in answers[staged:]} == {400}
    done(stage(stack, "radius.secret", f"{marks[0]}-invalid"))
    done(stage(stack, "demux.trunks", ["trunk7"]))
    keep(post(stack, "commit"))
    done(post(stack, "discard"))
    for path in ("radius.secret", "radius.server", "subscribers", "api.users.secret"):
        keep(post(stack, "delete", {"path": path}))
    look()
    keep(post(stack, "commit"))
    look()
    log = (Path(stack.environment["CORE_SOCKET"]).parent / "log").read_text()
    texts = [*(answer.text for answer in answers), log]
    assert [text for text in texts if "s3cret" in text or "$2b$" in text] == []
    assert sum(MASK in text for text in texts) > 10


# Who may

ADMIN_ONLY = [
    *((method_of(step), f"/{step}") for step in (*CHANGES, "confirm")),
    *(("GET", path) for path in ("/compare", "/compare?revision=1", "/candidate")),
]


@pytest.mark.parametrize(("method", "path"), ADMIN_ONLY)
def test_an_operator_may_not_look_at_what_is_staged_nor_change_it(
    staged: Api, method: str, path: str
) -> None:
    before = tag(staged)
    body = CHANGES.get(path.removeprefix("/"))
    answer = staged.send(method, CONFIG + path, "operator", json=body)
    assert (answer.status_code, answer.json()) == (403, NOT_ADMIN)
    assert tag(staged) == before


@pytest.mark.parametrize("path", ["", "/archive", "/archive/1"])
def test_an_operator_may_read_what_runs_and_what_ran(staged: Api, path: str) -> None:
    assert done(staged.send("GET", CONFIG + path, "operator"))


@pytest.mark.parametrize(
    ("method", "path"), [*ADMIN_ONLY, ("GET", ""), ("GET", "/archive"), ("GET", "/archive/1")]
)
def test_nobody_without_a_token_sees_or_changes_anything(staged: Api, method: str, path: str) -> None:
    before = tag(staged)
    assert staged.send(method, CONFIG + path, None, json={}).status_code == 401
    assert tag(staged) == before


# Commits that want to be confirmed


@dataclass(frozen=True)
class Return:
    """What was seen of a commit that nobody confirmed. Names are those that ran, tags those of all views."""

    names: list[str]
    tags: list[str]
    deadline: int
    at: int
    newest_archived: dict[str, Any]
    author: str


#: Seconds in which a busy machine reads or confirms what was committed.
SOON = 5


@pytest.fixture(scope="module")
def unconfirmed(running: Running) -> Return:
    """A commit that returned, with nothing staged after it. To be looked at without another commit."""
    api, _ = running
    names = [commit_a_name(api), stage_a_name(api)]
    tags = [tag(api)]
    deadline = commit(api, confirm_seconds=SOON, comment="unconfirmed")["confirm_deadline"]
    names.append(running_name(api))
    tags.append(tag(api))
    wait_for("the return", lambda: running_name(api) != names[1], 10)
    at = api.get(f"{CONFIG}/archive")["running"]["committed_at"]
    names.append(running_name(api))
    tags.append(tag(api))
    newest_archived = archive(api)[0]
    # Nothing is staged: this commit only tells of what runs.
    return Return(names, tags, deadline, at, newest_archived, commit(api)["author"])


def test_an_unconfirmed_commit_runs_and_then_what_ran_before(unconfirmed: Return) -> None:
    before, committed, ran, after = unconfirmed.names
    assert ran == committed
    assert after == before


def test_an_unconfirmed_commit_returns_at_its_deadline(unconfirmed: Return) -> None:
    assert unconfirmed.deadline - 1 <= unconfirmed.at < unconfirmed.deadline + SOON


def test_the_return_leaves_nothing_staged(unconfirmed: Return, stack: Api) -> None:
    assert compared(stack) == []


def test_the_return_changes_the_tag(unconfirmed: Return, stack: Api) -> None:
    assert len(set(unconfirmed.tags)) == len(unconfirmed.tags)
    headers = {"If-Match": unconfirmed.tags[1]}
    refused(stage(stack, "system.hostname", a_name(), headers=headers), 412)


def test_what_returned_is_archived(unconfirmed: Return) -> None:
    archived = unconfirmed.newest_archived
    assert (archived["revision"], archived["author"], archived["comment"]) == (1, "admin", "unconfirmed")


def test_what_has_returned_cannot_be_confirmed(unconfirmed: Return, stack: Api) -> None:
    refused(post(stack, "confirm"), 409)


def test_the_author_of_the_return_is_the_core(unconfirmed: Return) -> None:
    assert unconfirmed.author == "core"


def test_the_return_is_archived_as_the_core_made_it(stack: Api) -> None:
    returned = commit_a_name(stack)
    left = commit_a_name(stack, confirm_seconds=SOON)
    assert running_name(stack) == left
    wait_for("the return", lambda: running_name(stack) == returned, 10)
    commit_a_name(stack)
    newest = archive(stack)[0]
    assert newest["author"] == "core"
    assert newest["comment"]


def test_a_commit_that_is_confirmed_in_time_stays(stack: Api) -> None:
    name = stage_a_name(stack)
    deadline = commit(stack, confirm_seconds=SOON)["confirm_deadline"]
    done(post(stack, "confirm"))
    wait_until_after(deadline)
    assert running_name(stack) == name


def test_who_compares_sees_until_when_a_commit_waits(stack: Api) -> None:
    def waits() -> Any:
        return stack.get("/system/config/compare", "admin")["confirm_deadline"]

    done(stage(stack, "qos.default_down", "77mbit"))
    assert waits() is None
    deadline = commit(stack, confirm_seconds=60)["confirm_deadline"]
    assert waits() == deadline
    assert post(stack, "confirm").ok
    assert waits() is None


def test_with_nothing_to_confirm_a_confirmation_is_409(stack: Api) -> None:
    commit_a_name(stack)
    assert refused(post(stack, "confirm"), 409) == []


def test_a_commit_is_confirmed_once(stack: Api) -> None:
    commit_a_name(stack, confirm_seconds=60)
    done(post(stack, "confirm"))
    refused(post(stack, "confirm"), 409)


def test_a_second_confirmed_commit_keeps_the_baseline_of_the_first(stack: Api) -> None:
    before = commit_a_name(stack)
    commit_a_name(stack, confirm_seconds=60)
    name = commit_a_name(stack, confirm_seconds=1)
    wait_for("the return", lambda: running_name(stack) != name, 10)
    assert running_name(stack) == before


def test_a_second_confirmed_commit_moves_the_deadline(stack: Api) -> None:
    stage_a_name(stack)
    first = commit(stack, confirm_seconds=2)["confirm_deadline"]
    name = stage_a_name(stack)
    second = commit(stack, confirm_seconds=60)["confirm_deadline"]
    assert second - first >= 57
    wait_until_after(first)
    assert running_name(stack) == name
    done(post(stack, "confirm"))


def test_a_plain_commit_confirms_the_one_that_waits(stack: Api) -> None:
    commit_a_name(stack, confirm_seconds=60)
    name = stage_a_name(stack)
    assert commit(stack)["confirm_deadline"] is None
    refused(post(stack, "confirm"), 409)
    assert running_name(stack) == name


def test_without_changes_a_confirmed_commit_moves_the_deadline_of_the_one_that_waits(stack: Api) -> None:
    before = commit_a_name(stack)
    stage_a_name(stack)
    first = commit(stack, confirm_seconds=600)["confirm_deadline"]
    said = commit(stack, confirm_seconds=1)
    assert said["committed"] is False
    assert said["confirm_deadline"] <= first - 590
    wait_for("the return", lambda: running_name(stack) == before, 10)


def test_without_changes_and_without_one_that_waits_there_is_nothing_to_confirm(stack: Api) -> None:
    assert commit(stack, confirm_seconds=60)["confirm_deadline"] is None
    refused(post(stack, "confirm"), 409)


def test_a_commit_that_is_refused_leaves_the_deadline_of_the_one_that_waits(stack: Api) -> None:
    before = commit_a_name(stack)
    commit_a_name(stack, confirm_seconds=1)
    done(stage(stack, "demux.trunks", ["trunk7"]))
    refused(post(stack, "commit", {"confirm_seconds": 60}), 400)
    wait_for("the return", lambda: running_name(stack) == before, 10)


def test_what_is_staged_outlives_the_return(stack: Api) -> None:
    before = commit_a_name(stack)
    commit_a_name(stack, confirm_seconds=1)
    name = stage_a_name(stack)
    wait_for("the return", lambda: running_name(stack) == before, 10)
    assert compared(stack) == [f'- system.hostname = "{before}"', f'+ system.hostname = "{name}"']


# Processes that die


def test_what_is_staged_outlives_all_workers(running: Running, stack: Api) -> None:
    name = stage_a_name(stack)
    before = tag(stack)
    kill_workers(running)
    assert tag(stack) == before
    assert commit(stack)["changes"] == 1
    assert running_name(stack) == name


def test_what_is_staged_outlives_the_core(running: Running, stack: Api) -> None:
    commit_a_name(stack, comment="before it died")
    name = stage_a_name(stack)
    before, known = tag(stack), archive(stack)
    kill_core(running)
    assert (tag(stack), archive(stack)) == (before, known)
    assert commit(stack)["changes"] == 1
    assert running_name(stack) == name
    assert archive(stack)[0]["comment"] == "before it died"


def test_a_deadline_that_passes_while_the_core_is_dead_is_kept_when_it_is_back(
    running: Running, stack: Api
) -> None:
    before = commit_a_name(stack)
    commit_a_name(stack, confirm_seconds=1)
    kill_core(running)
    wait_for("the return", lambda: running_name(stack) == before, 10)


def test_a_commit_can_be_confirmed_after_the_core_has_died(running: Running, stack: Api) -> None:
    name = stage_a_name(stack)
    commit(stack, confirm_seconds=60)
    kill_core(running)
    assert running_name(stack) == name
    done(post(stack, "confirm"))
    refused(post(stack, "confirm"), 409)


# Many commits


def test_49_revisions_are_kept_and_the_last_of_them_can_be_had_back(stack: Api) -> None:
    names = [commit_a_name(stack, comment=str(number)) for number in range(60)]
    kept = archive(stack)
    assert [revision["revision"] for revision in kept] == list(range(1, 50))
    assert [revision["comment"] for revision in kept] == [str(number) for number in range(58, 9, -1)]
    assert done(post(stack, "rollback", {"revision": 49}))["changes"] == 1
    assert commit(stack)["committed"]
    assert running_name(stack) == names[10]
    refused(post(stack, "rollback", {"revision": 50}), 404)
