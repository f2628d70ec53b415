"""The workflow of the configuration over HTTPS, against a gateway of its own."""

import json
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.documents import SECRET_HASH
from tests.support.stack import Api, running_stack, wait_for

CONFIG = "/system/config"
MASK = "********"
NO_IMPACT = {"services": [], "sessions_dropped": 0, "sessions": [], "sessions_held": 0}

_numbers = count(1)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running_stack(tmp_path_factory.mktemp("workflow"), sessions=5) as (api, _):
        yield api


@pytest.fixture
def stack(running: Api) -> Iterator[Api]:
    """An API with nothing staged and no commit that waits; so it is again at the end of the test."""
    yield running
    post(running, "confirm")
    done(post(running, "discard"))


def post(api: Api, step: str, body: Any = None, **more: Any) -> requests.Response:
    if body is not None:
        more["json"] = body
    return api.send("PUT" if step == "candidate" else "POST", f"{CONFIG}/{step}", **more)


def done(answer: requests.Response) -> Any:
    """The data of an answer that must be a success."""
    assert answer.status_code == 200, answer.text
    assert answer.json().keys() == {"status", "data"}
    return answer.json()["data"]


def refused(answer: requests.Response, status: int = 400) -> list[str]:
    """The paths of the problems of an answer that must be this error."""
    assert answer.status_code == status, answer.text
    document = answer.json()
    assert (document.pop("status"), bool(document.pop("message"))) == ("error", True)
    problems = document.pop("errors", [])
    assert document == {}
    assert all(problem.keys() == {"path", "code", "message"} for problem in problems)
    return [problem["path"] for problem in problems]


def stage(api: Api, path: str, value: Any, **more: Any) -> requests.Response:
    return post(api, "set", {"path": path, "value": value}, **more)


def stage_name(api: Api) -> str:
    """Stages a host name that nobody had."""
    name = f"host{next(_numbers)}"
    done(stage(api, "system.hostname", name))
    return name


def commit(api: Api, **body: Any) -> Any:
    return done(post(api, "commit", body))


def commit_name(api: Api, **body: Any) -> str:
    """Commits a host name that nobody had."""
    name = stage_name(api)
    assert commit(api, **body)["committed"]
    return name


def running_name(api: Api) -> Any:
    return api.get(CONFIG)["system"]["hostname"]


def candidate(api: Api) -> Any:
    return api.get(f"{CONFIG}/candidate", "admin")


def compared(api: Api, **query: Any) -> list[str]:
    text: str = api.get(f"{CONFIG}/compare", "admin", params=query)["diff"]
    return text.splitlines()


def renamed(before: str, after: str) -> list[str]:
    """The lines of a difference of two host names."""
    return [f'- system.hostname = "{before}"', f'+ system.hostname = "{after}"']


def etag_of(api: Api) -> str:
    return api.send("GET", CONFIG).headers["ETag"]


def archive(api: Api) -> list[dict[str, Any]]:
    listed = api.get(f"{CONFIG}/archive")
    assert listed["count"] == len(listed["revisions"])
    revisions: list[dict[str, Any]] = listed["revisions"]
    return revisions


# Stage, compare, commit


def test_a_value_that_is_set_and_a_key_that_is_deleted_are_staged_and_do_not_run(stack: Api) -> None:
    before = stack.get(CONFIG)
    assert compared(stack) == []
    name = stage_name(stack)
    assert compared(stack) == renamed(before["system"]["hostname"], name)
    assert done(post(stack, "delete", {"path": "bgp"})) is None
    held = candidate(stack)
    assert (held["system"]["hostname"], "bgp" in held) == (name, False)
    assert stack.get(CONFIG) == before
    assert done(post(stack, "discard")) is None
    assert (compared(stack), candidate(stack)) == ([], before)


def test_a_commit_runs_the_candidate_and_says_what_it_did(stack: Api) -> None:
    name = stage_name(stack)
    done(stage(stack, "demux.idle_timeout", 100 + next(_numbers)))
    began = int(time.time())
    said = commit(stack, comment="a new name")
    assert began - 1 <= said.pop("committed_at") <= time.time() + 1
    assert said == {
        "message": "Committed 2 changes",
        "committed": True,
        "changes": 2,
        "archived_revision": 1,
        "author": "admin",
        "comment": "a new name",
        "confirm_deadline": None,
        "impact": NO_IMPACT,
    }
    assert (running_name(stack), compared(stack)) == (name, [])


def test_with_nothing_to_commit_nothing_is_committed_and_that_is_no_error(stack: Api) -> None:
    name = commit_name(stack, comment="the last one")
    known, before = archive(stack), etag_of(stack)
    done(stage(stack, "system.hostname", name))
    answer = post(stack, "commit", {"comment": "another"})
    said = done(answer)
    assert (said["message"], said["committed"], said["changes"]) == ("Nothing to commit", False, 0)
    assert (said["archived_revision"], said["comment"]) == (None, "the last one")
    assert (archive(stack), answer.headers["ETag"]) == (known, before)


def test_an_edit_stages_all_of_its_operations_in_their_order_and_answers_with_paths_by_keys(
    stack: Api,
) -> None:
    operations = [
        {"op": "set", "path": "system.hostname", "value": "first"},
        {"op": "set", "path": "api.users.1.role", "value": "admin"},
        {"op": "delete", "path": "bgp.neighbors.0"},
        {"op": "set", "path": "interfaces.trunks", "value": '["trunk0"]'},
        {"op": "set", "path": "demux.rate_limits", "value": {"burst": 5}},
        {"op": "set", "path": "system.hostname", "value": "last"},
    ]
    paths = [operation["path"] for operation in operations]
    paths[1:3] = ["api.users.operator.role", 'bgp.neighbors."10.255.0.2"']
    assert done(post(stack, "edit", {"operations": operations})) == {"paths": paths}
    held = candidate(stack)
    assert (held["system"]["hostname"], held["interfaces"]["trunks"]) == ("last", ["trunk0"])
    assert held["demux"]["rate_limits"] == {"burst": 5}
    assert '+ api.users.operator.role = "admin"' in compared(stack)


# Refused changes


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("nope", "x", "nope"),
        ("", "x", "path"),
        ("system hostname", "x", "path"),
        ("x" * 513, "x", "path"),
        ("system", {"nope": 1}, "system.nope"),
        ("demux.idle_timeout", 0, "demux.idle_timeout"),
        ("api.users.0.role", "root", "api.users.admin.role"),
        ("radius", f'{{"secret":"{MASK}"}}', "radius.secret"),
        ('bgp.neighbors."10.255.0.2".password', "null", 'bgp.neighbors."10.255.0.2".password'),
        ("bgp.neighbors.10.255.0.2.password", "x", "bgp.neighbors.10.255.0.2.password"),
    ],
)
def test_a_refused_value_is_named_by_its_path_and_stages_nothing(
    stack: Api, path: str, value: Any, named: str
) -> None:
    before = etag_of(stack)
    assert refused(stage(stack, path, value)) == [named]
    fine = {"op": "set", "path": "system.hostname", "value": "never.seen"}
    operations = [fine, {"op": "set", "path": path, "value": value}, fine]
    assert refused(post(stack, "edit", {"operations": operations})) == [f"operations.1.{named}"]
    assert etag_of(stack) == before


def test_a_rate_that_has_lost_its_unit_is_refused_wherever_a_rate_is_taken(stack: Api) -> None:
    session = stack.get("/subscribers", params={"limit": 1})["sessions"][0]["id"]
    for method, path, body, named in (
        ("PUT", f"/subscribers/{session}/rate", {"rate_down": "50"}, "rate_down"),
        ("POST", "/subscribers/rate", {"filter": {"type": "pppoe"}, "rate_up": "50"}, "rate_up"),
        ("POST", f"{CONFIG}/set", {"path": "qos.default_down", "value": "50"}, "qos.default_down"),
    ):
        answer = stack.send(method, path, json=body)
        assert refused(answer) == [named]
        (problem,) = answer.json()["errors"]
        assert problem["message"] == "must be at least 8 kbit/s, not 50 bit/s: is the unit missing?"


def test_a_path_that_is_not_in_the_candidate_cannot_be_deleted(stack: Api) -> None:
    before = etag_of(stack)
    quotes = "a key with dots or digits needs quotes, and a shell removes them"
    for path, message in (
        ("api.users.ghost", "The candidate has no api.users.ghost"),
        ("bgp.neighbors.10.9.9.9", f"The candidate has no bgp.neighbors.10.9.9.9; {quotes}"),
    ):
        answer = post(stack, "delete", {"path": path})
        assert refused(answer, 404) == []
        assert answer.json()["message"].startswith(message)
        operations = [{"op": "delete", "path": "bgp"}, {"op": "delete", "path": path}]
        answer = post(stack, "edit", {"operations": operations})
        assert refused(answer, 404) == []
        assert answer.json()["message"].startswith(f"operations.1: {message}")
    assert etag_of(stack) == before


def test_a_field_that_is_missing_unknown_or_wrong_is_named(stack: Api) -> None:
    stage_name(stack)
    before = etag_of(stack)
    delete = {"op": "delete", "path": "bgp"}
    for step, body, path in (
        ("set", {"path": "bgp"}, "value"),
        ("set", {"path": 5, "value": "x"}, "path"),
        ("set", {"path": "system.hostname", "value": "x", "comment": "x"}, "comment"),
        *(("delete", {}, "path"), ("edit", {}, "operations"), ("rollback", {}, "revision")),
        *(("delete", {"path": "bgp", "value": "x"}, "value"), ("commit", {"remark": "x"}, "remark")),
        ("edit", {"operations": [{"op": "move", "path": "bgp"}]}, "operations.0.op"),
        ("edit", {"operations": [{"op": "set", "path": "bgp"}]}, "operations.0.value"),
        ("edit", {"operations": [{**delete, "value": 1}]}, "operations.0.value"),
    ):
        assert refused(post(stack, step, body)) == [path]
    for step, field, values in (
        ("edit", "operations", ([], "x", [delete] * 1001)),
        ("commit", "comment", (5, "x" * 257, "two\nlines", "\x1b", "\u202e")),
        ("commit", "confirm_seconds", (0, 86_401, "5", True, 1.5)),
        ("commit", "max_sessions_dropped", (-1, 1 << 31, "5")),
        ("rollback", "revision", ("1", True, 1.5, None)),
    ):
        for value in values:
            assert refused(post(stack, step, {field: value})) == [field]
    assert etag_of(stack) == before


#: JSON that parsers may not survive.
HARMFUL = [
    *(r'"\ud800"', r'"[\"\\ud800\"]"', "1e400", "Infinity", "9" * 900_000),
    "[" * 400_000 + "]" * 400_000,
    '"' + r"{\"a\":" * 20_000 + "1" + "}" * 20_000 + '"',
    *('{"a":' * depth + "1" + "}" * depth for depth in (900, *range(960, 1000, 5))),
    # Longer when they are quoted again.
    '"' + r"\u0001" * 150_000 + '"',
    '"' + "x" * (1 << 20) + '"',
]


def test_no_value_harms_the_gateway(stack: Api) -> None:
    before = etag_of(stack)
    for value in HARMFUL:
        for step, body in (
            ("set", f'{{"path":"demux","value":{value}}}'),
            ("edit", f'{{"operations":[{{"op":"set","path":"interfaces.trunks","value":{value}}}]}}'),
            ("candidate", f'{{"demux":{value}}}'),
        ):
            refused(post(stack, step, data=body.encode()), 413 if len(body) > 1 << 20 else 400)
    assert etag_of(stack) == before


def test_a_commit_of_an_invalid_candidate_names_every_problem_and_keeps_the_candidate(stack: Api) -> None:
    local = [{"username": name, "password": "pw", "ip_address": "100.64.0.9"} for name in ("2", "7")]
    done(stage(stack, "subscribers.local", local))
    done(post(stack, "delete", {"path": "cgnat.vrf_table"}))
    name = stage_name(stack)
    before, runs, known = etag_of(stack), stack.get(CONFIG), archive(stack)
    assert sorted(refused(post(stack, "commit", {"confirm_seconds": 60}))) == [
        "cgnat.vrf_table",
        'subscribers.local."7".ip_address',
    ]
    assert (etag_of(stack), stack.get(CONFIG), archive(stack)) == (before, runs, known)
    done(stage(stack, "cgnat.vrf_table", 100))
    done(post(stack, "delete", {"path": "subscribers"}))
    assert commit(stack)["changes"] == 1
    assert running_name(stack) == name


# A whole candidate


def test_a_whole_candidate_replaces_all_that_was_staged_and_keeps_masked_secrets(stack: Api) -> None:
    before = running_name(stack)
    document = stack.get(CONFIG)
    done(stage(stack, "demux.idle_timeout", 4_321))
    name = document["system"]["hostname"] = f"host{next(_numbers)}"
    assert done(post(stack, "candidate", document)) is None
    assert (candidate(stack), running_name(stack)) == (document, before)
    assert compared(stack) == renamed(before, name)
    document["api"]["users"].reverse()
    done(post(stack, "candidate", document))
    assert commit(stack)["changes"] == 2
    stack.forget_tokens()
    assert stack.log_in("operator", stack.environment["OPERATOR_PASSWORD"]).status_code == 200


def test_a_whole_candidate_is_refused_with_every_wrong_value_and_may_lack_some(stack: Api) -> None:
    before, document = etag_of(stack), candidate(stack)
    del document["cgnat"]["vrf_table"]
    wrong = {**document, "extra": {}, "qos": {"default_down": "fast"}}
    assert sorted(refused(post(stack, "candidate", wrong))) == ["extra", "qos.default_down"]
    wrong["system"] = {"hostname": MASK}
    assert refused(post(stack, "candidate", wrong)) == ["system.hostname"]
    assert etag_of(stack) == before
    done(post(stack, "candidate", document))
    assert refused(post(stack, "commit")) == ["cgnat.vrf_table"]
    assert candidate(stack) == document


# The archive


def test_the_archive_has_the_former_configurations_and_their_commits(stack: Api) -> None:
    began = time.time()
    comment = "Grüße, 世界 \"<&>\\'"
    first = commit_name(stack, comment=comment)
    ran = stack.get(CONFIG)
    commit_name(stack, comment="")
    newest, running = archive(stack)[0], stack.get(f"{CONFIG}/archive")["running"]
    assert began - 1 <= newest.pop("committed_at") <= running.pop("committed_at") <= time.time() + 1
    assert newest == {"revision": 1, "author": "admin", "comment": comment}
    assert running == {"author": "admin", "comment": ""}
    shown = stack.get(f"{CONFIG}/archive/1")
    assert shown.pop("committed_at") >= began - 1
    assert shown == {**newest, "configuration": ran}
    assert ran["system"]["hostname"] == first


def test_revisions_are_compared_with_the_candidate_and_with_one_another(stack: Api) -> None:
    two, one, now = (commit_name(stack) for _ in range(3))
    staged = stage_name(stack)
    assert compared(stack, revision=2) == renamed(two, staged)
    assert compared(stack, revision=2, to=1) == renamed(two, one)
    assert compared(stack, revision=1, to=0) == renamed(one, now)
    assert compared(stack, to=2) == renamed(now, two)


def test_a_rollback_stages_a_revision_and_a_commit_runs_it(stack: Api) -> None:
    old, new = commit_name(stack), commit_name(stack)
    done(stage(stack, "demux.idle_timeout", 4_321))
    said = done(post(stack, "rollback", {"revision": 1}))
    message = "Revision 1 is the candidate; a commit makes it the running configuration"
    assert said == {"message": message, "revision": 1, "changes": 1}
    assert candidate(stack) == stack.get(f"{CONFIG}/archive/1")["configuration"]
    assert running_name(stack) == new
    said = commit(stack, comment=None, confirm_seconds=None, max_sessions_dropped=None)
    assert (said["message"], said["comment"], said["confirm_deadline"]) == ("Committed 1 change", None, None)
    assert running_name(stack) == old
    assert stack.get(f"{CONFIG}/archive/1")["configuration"]["system"]["hostname"] == new


def test_a_revision_that_is_not_in_the_archive_is_404(stack: Api) -> None:
    stage_name(stack)
    before = etag_of(stack)
    for revision in (0, -1, 50, 1 << 31, 1 << 70):
        assert refused(post(stack, "rollback", {"revision": revision}), 404) == []
    for text in ("abc", "0", "-1", "01", "1.0", "50", "9" * 30, "%D9%A1"):
        assert refused(stack.send("GET", f"{CONFIG}/archive/{text}"), 404) == []
    for query in ({"revision": "0"}, {"revision": "50"}, {"to": "50"}):
        assert refused(stack.send("GET", f"{CONFIG}/compare", params=query), 404) == []
    for query in ({"revision": "abc"}, {"revision": ""}, {"to": "-1"}, {"rev": "1"}):
        assert refused(stack.send("GET", f"{CONFIG}/compare", params=query)) == list(query)
    assert etag_of(stack) == before


# Entity tags

#: Each change, with a body that has an effect after a commit and with a name staged.
CHANGES: dict[str, Any] = {
    "set": {"path": "system.hostname", "value": "never.seen"},
    "delete": {"path": "bgp"},
    "edit": {"operations": [{"op": "delete", "path": "bgp"}]},
    "candidate": {"system": {"hostname": "never.seen"}},
    "commit": {},
    "rollback": {"revision": 1},
    "discard": None,
}


@pytest.mark.parametrize("step", CHANGES)
def test_a_change_is_made_with_the_entity_tag_that_all_views_have_and_answers_with_the_next(
    stack: Api, step: str
) -> None:
    def etags() -> set[str]:
        paths = ("", "/candidate", "/compare", "/compare?revision=1")
        return {stack.send("GET", CONFIG + path).headers["ETag"] for path in paths}

    commit_name(stack)
    stage_name(stack)
    (before,) = etags()
    answer = post(stack, step, CHANGES[step], headers={"If-Match": f'"0", {before}, W/"1"'})
    done(answer)
    assert etags() == {answer.headers["ETag"]} != {before}


@pytest.mark.parametrize("step", CHANGES)
def test_a_change_with_an_old_or_a_weak_entity_tag_is_412_and_not_made(stack: Api, step: str) -> None:
    commit_name(stack)
    old = etag_of(stack)
    stage_name(stack)
    before, runs, held, known = etag_of(stack), stack.get(CONFIG), candidate(stack), archive(stack)
    for sent in (old, f"W/{before}"):
        answer = post(stack, step, CHANGES[step], headers={"If-Match": sent})
        assert refused(answer, 412) == []
        assert answer.headers["ETag"] == before
    assert "has a weak entity tag (W/), which never matches" in answer.json()["message"]
    assert (etag_of(stack), stack.get(CONFIG), candidate(stack), archive(stack)) == (
        before,
        runs,
        held,
        known,
    )


def test_a_header_without_the_current_entity_tag_matches_nothing_and_a_star_anything(stack: Api) -> None:
    for sent, status in (('""', 412), ('"0" , ,"1",', 412), ('"é"', 412), ('"unclosed', 400), ("*", 200)):
        headers: dict[str, Any] = {"If-Match": sent.encode("latin-1")}
        assert stage(stack, "system.hostname", "never.seen", headers=headers).status_code == status


# Access, and secrets


def test_an_operator_reads_what_runs_and_ran_but_nothing_that_is_staged_and_changes_nothing(
    stack: Api,
) -> None:
    commit_name(stack)
    stage_name(stack)
    before = etag_of(stack)
    for path in ("", "/archive", "/archive/1"):
        done(stack.send("GET", CONFIG + path, "operator"))
    answers = [stack.send("GET", f"{CONFIG}/{path}", "operator") for path in ("compare", "candidate")]
    for step, body in {**CHANGES, "confirm": None}.items():
        answers.append(post(stack, step, body, role="operator"))
    for answer in answers:
        assert (answer.status_code, answer.json()) == (403, {"detail": "Admin role required"})
    assert etag_of(stack) == before


def test_no_answer_and_no_line_of_the_log_has_a_secret(stack: Api) -> None:
    answers: list[requests.Response] = []

    def commit_and_read() -> None:
        answers.append(post(stack, "commit"))
        for path in ("", "/candidate", "/compare", "/compare?revision=1", "/archive", "/archive/1"):
            answers.append(stack.send("GET", CONFIG + path))

    users = {"password_hash": SECRET_HASH, "role": "operator"}
    for number in range(2):
        radius = {"server": "192.0.2.1", "secret": f"s3cret-{number}"}
        answers.append(stage(stack, "radius", json.dumps(radius)))
        answers.append(stage(stack, "subscribers.local", [{"username": "a", "password": f"s3cret-{number}"}]))
        answers.append(stage(stack, "api.users.secret", users))
        radius["secret"] += "-whole"
        answers.append(post(stack, "candidate", {**candidate(stack), "radius": radius}))
        commit_and_read()
    for path in ("radius.secret", "radius.server", "subscribers", "api.users.secret"):
        answers.append(post(stack, "delete", {"path": path}))
    commit_and_read()
    assert {answer.status_code for answer in answers} == {200}
    wrong: list[tuple[str, Any]] = [
        *(("radius.secret", "s3cret with blanks"), ("radius.secret", {"s3cret": 1}), ("api.token", "s3cret")),
        *(("radius", '{"secret":"s3cret'), ("subscribers.local", [{"password": "s3cret"}])),
        ("api.users.admin.password_hash", f"{SECRET_HASH}x"),
    ]
    failed = [stage(stack, path, value) for path, value in wrong]
    failed.append(post(stack, "candidate", {**candidate(stack), "radius": {"secret": "s3cret,"}}))
    assert {answer.status_code for answer in failed} == {400}
    log = (Path(stack.environment["CORE_SOCKET"]).parent / "log").read_text()
    texts = [*(answer.text for answer in answers + failed), log]
    assert [text for text in texts if "s3cret" in text or "$2b$" in text] == []
    assert sum(MASK in text for text in texts) > 10


# Commits that wait for a confirmation


def test_a_commit_that_nobody_confirms_returns_at_its_deadline_and_staged_changes_stay(stack: Api) -> None:
    def deadline() -> Any:
        return stack.get(f"{CONFIG}/compare", "admin")["confirm_deadline"]

    before = commit_name(stack)
    assert deadline() is None
    name = stage_name(stack)
    began = time.time()
    said = commit(stack, confirm_seconds=600, comment="unconfirmed")
    assert began + 600 <= said["confirm_deadline"] <= time.time() + 601
    shown = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(said["confirm_deadline"]))
    assert (
        said["message"] == f"Committed 1 change; the former configuration returns at {shown} unless confirmed"
    )
    assert (running_name(stack), deadline()) == (name, said["confirm_deadline"])
    second, staged = commit_name(stack, confirm_seconds=600), stage_name(stack)
    old = etag_of(stack)
    done(post(stack, "discard"))
    # Without changes, a commit moves the deadline.
    moved = commit(stack, confirm_seconds=1)
    assert (moved["committed"], moved["message"][:18]) == (False, "Nothing to commit;")
    done(stage(stack, "system.hostname", staged))
    wait_for("the return", lambda: running_name(stack) != second)
    # Of several commits, that before the first returns.
    assert (running_name(stack), deadline()) == (before, None)
    assert stack.get(f"{CONFIG}/archive")["running"]["committed_at"] >= moved["confirm_deadline"]
    assert compared(stack) == renamed(before, staged)
    assert refused(post(stack, "confirm"), 409) == []
    refused(stage(stack, "system.hostname", "late", headers={"If-Match": old}), 412)
    listed = stack.get(f"{CONFIG}/archive")
    assert [one["comment"] for one in listed["revisions"][:2]] == [None, "unconfirmed"]
    assert (listed["running"]["author"], listed["running"]["comment"]) == ("core", "not confirmed in time")


def test_a_commit_is_confirmed_once_or_by_the_next_plain_commit(stack: Api) -> None:
    assert refused(post(stack, "confirm"), 409) == []
    commit_name(stack, confirm_seconds=600)
    assert done(post(stack, "confirm")) == {"message": "Confirmed"}
    refused(post(stack, "confirm"), 409)
    commit_name(stack, confirm_seconds=600)
    name = stage_name(stack)
    said = commit(stack)
    assert said["message"] == "Committed 1 change, and confirmed the commit before"
    assert (said["confirm_deadline"], running_name(stack)) == (None, name)
    refused(post(stack, "confirm"), 409)
    # Nothing waits, and nothing is to be committed.
    assert commit(stack, confirm_seconds=60)["confirm_deadline"] is None
