"""`gatewayctl` edits, commits, backs up and restores the configuration of a gateway."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.by_api import commit, set_value, staged
from tests.support.running_gateway import Gateway
from tests.support.shell import Shell
from tests.support.stack import wait_for

FAILED, USAGE, AWAY = 1, 2, 3
HASH = "$2b$04$l6cHqOx.6njlYvAogLLyBucPkVMnGY95sbhMuf9sMa4d1mAUkSSVW"


@pytest.fixture(autouse=True, scope="module")
def _configuration_as_it_was(gateway: Gateway) -> Iterator[None]:
    before = gateway.api.get("/system/config")
    yield
    assert gateway.api.get("/system/config") == before


@pytest.fixture
def clean(admin: Shell) -> Iterator[Shell]:
    """Nothing is staged, before and after; the default rate upstream, which tests commit, is as it was."""
    assert staged(admin.api) == ""
    before = admin.api.get("/system/config")["qos"]["default_up"]
    yield admin
    admin.api.send("POST", "/system/config/discard")
    if admin.api.get("/system/config")["qos"]["default_up"] != before:
        set_value(admin.api, "qos.default_up", before)
        commit(admin.api)


# config


def test_a_value_is_set_compared_committed_confirmed_and_rolled_back(clean: Shell) -> None:
    before = clean.api.get("/system/config")["qos"]["default_down"]
    clean.done("config", "set", "qos.default_down", "77mbit")
    shown = clean.done("config", "compare")
    assert '+ qos.default_down = "77mbit"' in shown
    assert "0 sessions would end" in shown
    assert clean.done("config", "commit", "--dry-run") == shown
    assert clean.run("config", "commit").status == USAGE
    said = clean.done("config", "commit", "--yes", "--comment", "for a test", "--confirm-within", "60")
    assert "unless confirmed" in said
    assert clean.done("config", "compare").startswith(
        "no changes\nthe last commit must be confirmed until 20"
    )
    clean.done("config", "confirm")
    assert clean.done("config", "show", "qos.default_down") == 'qos.default_down = "77mbit"\n'
    first, second, *_ = clean.json("config", "archive")
    assert (first["revision"], first["author"], first["comment"]) == (0, "admin", "for a test")
    assert second["revision"] == 1
    assert clean.json("config", "archive", "0") == {**first, "configuration": clean.api.get("/system/config")}
    assert clean.done("config", "show", "--revision", "0") == clean.done("config", "show")
    assert f'"{before}"' in clean.done("config", "show", "--revision", "1", "qos.default_down")
    shown = clean.done("audit", "--action", "configuration.commit", "--limit", "1")
    assert f' unless confirmed: - qos.default_down = "{before}", + qos.default_down = "77mbit"\n' in shown
    clean.done("config", "rollback", "1")
    clean.done("config", "commit", "--yes", "--confirm-within", "60")
    clean.done("config", "rollback", "1")
    assert "a commit without --confirm-within confirms it too" in clean.done("config", "compare")
    assert clean.done("config", "commit", "--yes") == "Committed 1 change, and confirmed the commit before\n"
    assert clean.done("config", "compare") == "no changes\n"
    clean.done("config", "rollback", "1")
    clean.done("config", "commit", "--yes")
    assert clean.api.get("/system/config")["qos"]["default_down"] == before


@pytest.mark.parametrize(
    ("command", "question"), [("commit", "Commit this?"), ("discard", "Discard these changes?")]
)
def test_changes_are_shown_and_neither_dropped_nor_committed_unseen(
    clean: Shell, command: str, question: str
) -> None:
    clean.done("config", "set", "qos.default_up", "7mbit")
    assert clean.run("config", command).status == USAGE
    for typed in ("n", "y"):
        terminal = clean.at_terminal("config", command)
        terminal.expect('+ qos.default_up = "7mbit"')
        terminal.expect(f"{question} [y/N] ")
        if typed == "y":
            set_value(clean.api, "qos.default_down", "8mbit")
        terminal.type(f"{typed}\n")
        assert terminal.end() == FAILED
        assert ("has changed since" in terminal.shown) is (typed == "y")
    assert "8mbit" in staged(clean.api)
    clean.done("config", "discard", "--yes")
    assert staged(clean.api) == ""


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("set qos.default_down fast", FAILED, "must be a number and a unit, such as 50mbit"),
        ("set qos.default_down 100000", USAGE, "must have a unit, such as 250mbit"),
        ("set radius.secret null", FAILED, "must not be the text null: delete removes it"),
    ],
)
def test_the_rule_that_a_value_breaks_is_named_with_its_field(
    clean: Shell, command: str, status: int, said: str
) -> None:
    words = command.split()
    assert clean.run("config", *words) == (status, "", f"gatewayctl: {words[1]}: {said}\n")
    assert staged(clean.api) == ""


def test_a_change_names_the_item_by_its_key_and_a_key_without_quotes_changes_none(clean: Shell) -> None:
    clean.done("config", "set", "radius.secret", "-", feed="verysecret\n")
    assert "radius.secret" in staged(clean.api)
    item = 'bgp.neighbors."10.255.0.2"'
    clean.done("config", "set", item, '{"remote_as": 64513, "password": null}')
    (neighbor, *_) = clean.json("config", "show", "--candidate")["bgp"]["neighbors"]
    assert neighbor == {"address": "10.255.0.2", "remote_as": 64513, "password": None}
    said = clean.done("config", "set", "bgp.neighbors.0.description", "core9")
    assert said == f"{item}.description is set in the candidate\n"
    assert clean.json("config", "delete", "bgp.neighbors.0.description") == {"path": f"{item}.description"}
    local = json.dumps([{"username": name, "password": f"pw-{name}"} for name in ("2", "7", "1")])
    clean.done("config", "set", "subscribers.local", local)
    before = staged(clean.api)
    for command in (("set", "subscribers.local.1.password", "x"), ("delete", "subscribers.local.1")):
        ended = clean.run("config", *command)
        assert (ended.status, ended.out) == (FAILED, "")
        assert ended.err.startswith(f"gatewayctl: {command[1]}: 1 is an index here, and also the key")
        assert 'subscribers.local."1"; at the index is subscribers.local."7": write the key' in ended.err
    assert staged(clean.api) == before
    ended = clean.run("config", "show", "bgp.neighbors.10.255.0.2")
    assert ended.err.endswith("a shell removes them: 'bgp.neighbors.\"KEY\"'\n")
    assert clean.run("config", "show", "qos.nothing").status == FAILED
    assert clean.run("config", "show", "qos..x").status == USAGE


def test_the_candidate_is_edited_as_a_whole(clean: Shell) -> None:
    document = clean.json("config", "show", "--candidate")
    document["qos"]["default_up"] = "8mbit"
    del document["bgp"]["neighbors"][1]
    shown = clean.done("config", "edit", "--file", clean.write("candidate.json", json.dumps(document)))
    assert '+ qos.default_up = "8mbit"' in shown
    assert "password_hash" not in shown
    file = clean.folder / "document.json"
    for text, reason in (
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "it is nested too deeply"),
        ('{"system": {"hostname": "ü"}}'.encode("iso-8859-1"), "'utf-8' codec can't decode"),
    ):
        file.write_bytes(text)
        ended = clean.run("config", "edit", "--file", str(file))
        assert ended.status == USAGE
        assert ended.err.startswith(f"gatewayctl: the configuration is not JSON: {reason}")
        ended = clean.run("restore", "--yes", str(file))
        assert ended == (USAGE, "", f"gatewayctl: {file} is not a backup of a configuration\n")


def test_the_candidate_is_edited_in_an_editor_and_refused_text_is_kept(clean: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    clean.environment |= {"EDITOR": "sed -i.old s/20mbit/9mbit/", "TMPDIR": str(folder)}
    terminal = clean.at_terminal("config", "edit")
    assert terminal.end() == 0
    assert '+ qos.default_up = "9mbit"' in terminal.shown
    for typed, reason in (("9/fast", "qos.default_up"), ("9mbit.*/9m", "the configuration is not JSON")):
        for file in folder.iterdir():
            file.unlink()
        clean.environment["EDITOR"] = f"sed -i.old s/{typed}/"
        terminal = clean.at_terminal("config", "edit")
        assert terminal.end() != 0
        (kept,) = folder.glob("gatewayctl-*")
        shown = " ".join(terminal.shown.split())
        assert f"your text is in {kept}: " in shown
        assert reason in shown
        assert kept.stat().st_mode & 0o777 == 0o600
        assert f'"{typed.partition("/")[2]}' in kept.read_text()


def test_two_revisions_are_compared(clean: Shell) -> None:
    for rate in ("12mbit", "13mbit"):
        set_value(clean.api, "qos.default_up", rate)
        commit(clean.api)
    set_value(clean.api, "qos.default_up", "14mbit")

    def difference(*revisions: str) -> list[str]:
        shown = clean.done("config", "compare", *revisions)
        return re.findall(r'[-+] qos.default_up = "(\w+)"', shown)

    assert difference("1", "0") == ["12mbit", "13mbit"]
    assert difference("1") == difference("--revision", "1") == ["12mbit", "14mbit"]
    assert difference() == ["13mbit", "14mbit"]
    assert clean.done("config", "compare", "1", "1") == "no changes\n"
    assert clean.run("config", "compare", "0", "99").status == FAILED


# backup and restore


@pytest.fixture
def backup(admin: Shell) -> str:
    path = str(admin.folder / "back up.json")
    admin.done("backup", path)
    return path


def changed(admin: Shell, backup: str, section: str, **values: Any) -> str:
    document = json.loads(Path(backup).read_text())
    document[section].update(values)
    return admin.write("other.json", json.dumps(document))


def test_a_backup_has_all_but_the_secrets_and_says_so(gateway: Gateway, admin: Shell, backup: str) -> None:
    ended = admin.run("backup", "-")
    before = Path(backup).read_text()
    assert json.loads(ended.out) == json.loads(before) == admin.api.get("/system/config")
    assert "not in the backup" in ended.err
    assert [line.split()[-1] for line in ended.err.splitlines()[1:]] == [
        "api.users.admin.password_hash",
        "api.users.operator.password_hash",
        "radius.secret",
    ]
    assert Path(backup).stat().st_mode & 0o777 == 0o600
    away = {"status": "error", "message": "Core daemon unreachable"}
    with (
        gateway.replaced(lambda *_: (500, away)) as url,
        patch.dict(admin.environment, GATEWAY_URL=url),
    ):
        assert admin.run("backup", backup).status == AWAY
    assert Path(backup).read_text() == before
    assert not list(admin.folder.glob("*.json.*"))
    Path(backup).unlink()
    admin.done("backup")
    (found,) = admin.folder.glob("*.json")
    assert re.fullmatch(r"bng1-\d{8}T\d{6}Z\.json", found.name)


def test_what_was_backed_up_comes_back(admin: Shell, backup: str) -> None:
    api = admin.api
    before, revisions = api.get("/system/config"), api.get("/system/config/archive")
    assert admin.done("restore", "--yes", backup) == "the backup runs already; nothing to restore\n"
    assert api.get("/system/config/archive") == revisions
    set_value(api, "qos.default_down", "200mbit")
    set_value(api, "bgp", None)
    set_value(api, "api.users.carol", {"username": "carol", "role": "operator", "password_hash": HASH})
    set_value(api, "api.users.operator.role", "admin")
    commit(api)
    shown = admin.run("restore", "--yes", backup).err
    # The operator has been an admin meanwhile, which ended his tokens.
    api.forget_tokens()
    assert '+ qos.default_down = "100mbit"' in shown
    assert "running secrets stay as they are" in shown
    assert api.get("/system/config") == before
    # The secrets that were masked in the file are still those of before.
    assert api.log_in("operator", api.environment["OPERATOR_PASSWORD"]).status_code == 200


def test_a_restore_ends_no_more_sessions_than_it_may_and_a_dry_run_none(admin: Shell, backup: str) -> None:
    file = changed(admin, backup, "demux", trunks=["trunk0"])
    known = admin.api.get("/subscribers/summary")["total"]
    shown = re.search(r"^([1-9]\d*) sessions would end$", admin.done("restore", "--dry-run", file), re.M)
    assert shown
    ended = admin.run("restore", "--yes", "--max-dropped", str(int(shown[1]) - 1), file)
    assert ended.status == FAILED
    assert f"would end {shown[1]} sessions" in ended.err
    assert admin.api.get("/subscribers/summary")["total"] == known
    assert staged(admin.api) == ""


def test_a_restore_that_is_not_committed_or_not_kept_is_undone(admin: Shell, backup: str) -> None:
    def hostname() -> str:
        found: str = admin.api.get("/system/config")["system"]["hostname"]
        return found

    other = changed(admin, backup, "system", hostname="other")
    for typed in ("n\n", "\x03"):
        terminal = admin.at_terminal("restore", other)
        terminal.expect("Commit this? [y/N] ")
        assert staged(admin.api)
        terminal.type(typed)
        assert terminal.end() == FAILED
        assert staged(admin.api) == ""
    terminal = admin.at_terminal("restore", "--within", "2", other)
    terminal.expect("Commit this? [y/N] ")
    terminal.type("y\n")
    terminal.expect("Keep it? [y/N] ")
    terminal.type("n\n")
    assert terminal.end() == FAILED
    assert "not confirmed" in terminal.shown
    wait_for("the former configuration returns", lambda: hostname() == "bng1", 10)
    assert admin.api.get("/system/config/archive")["revisions"][0]["comment"] == "restored from other.json"


def test_what_another_user_has_staged_stops_a_restore(admin: Shell, backup: str) -> None:
    set_value(admin.api, "qos.default_up", "33mbit")
    commit(admin.api)
    set_value(admin.api, "qos.default_down", "44mbit")
    for more in ((), ("--discard", "--dry-run")):
        ended = admin.run("restore", "--yes", *more, backup)
        assert ended.status == FAILED
        assert '+ qos.default_down = "44mbit"' in ended.err
        assert "44mbit" in staged(admin.api)
    admin.done("restore", "--yes", "--discard", backup)
    assert staged(admin.api) == ""


def test_a_missing_secret_is_told_left_out_or_given(gateway: Gateway, admin: Shell, backup: str) -> None:
    api = admin.api
    api.send("POST", "/system/config/delete", json={"path": "api.users.operator"})
    commit(api)
    ended = admin.run("restore", "--yes", backup)
    assert ended.status == FAILED
    assert "gatewayctl:   api.users.operator.password_hash\n" in ended.err
    assert staged(api) == ""
    ended = admin.run("restore", "--yes", "--leave-out", backup)
    assert ended.out == "the backup runs already; nothing to restore\n"
    assert "left out" in ended.err
    users = json.loads((gateway.state / "factory.json").read_text())["api"]["users"]
    (hash,) = (user["password_hash"] for user in users if user["username"] == "operator")
    kept = admin.write("kept.json", json.dumps({"api.users.operator.password_hash": hash}))
    admin.done("restore", "--yes", "--secrets", kept, backup)
    api.forget_tokens()
    assert api.log_in("operator", api.environment["OPERATOR_PASSWORD"]).status_code == 200


def test_what_is_no_backup_or_does_not_hold_is_refused(admin: Shell, backup: str) -> None:
    for text, said in (
        ('{"api.users.opratr.password_hash": "x"}', "no such secret: api.users.opratr.password_hash"),
        ("[]", "is not an object of paths and secrets"),
        ('{"radius.secret": 1}', "is not an object of paths and secrets"),
    ):
        ended = admin.run("restore", "--yes", "--secrets", admin.write("kept.json", text), backup)
        assert (ended.status, said in ended.err) == (USAGE, True)
    for text in ("", "[]", '{"system":{}}'):
        ended = admin.run("restore", "--yes", admin.write("file.json", text))
        assert (ended.status, "is not a backup of a configuration" in ended.err) == (USAGE, True)
    ended = admin.run("restore", "--yes", changed(admin, backup, "demux", trunks=["nowhere"]))
    assert ended.status == FAILED
    assert "demux.trunks: must be among interfaces.trunks" in ended.err
    assert staged(admin.api) == ""
