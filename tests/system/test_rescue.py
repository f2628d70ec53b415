"""`gateway-api rescue`, as root runs it against a real core."""

import json
import os
import socket as socket_
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway_contract.core.configuration import Edit, GetConfiguration
from gateway_contract.core_client import CoreClient
from gateway_contract.passwords import verify
from gateway_contract.varlink.client import Client
from tests.support.documents import SECRET_HASH
from tests.support.shell import GATEWAYCTL
from tests.support.stack import running_core, wait_for
from tests.system.test_cli import COMMAND, typed

FACTORY = Path(__file__).parents[2] / "etc" / "factory.json"


@dataclass
class Gateway:
    """A core, and root's shell."""

    socket: Path
    client: Client

    def rescue(
        self, *arguments: str, feed: str = "", command: str = COMMAND
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [command, "rescue", *arguments],
            input=feed,
            env={**os.environ, "GATEWAY_CORE_SOCKET": str(self.socket)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def done(self, *arguments: str, feed: str = "", status: int = 0) -> str:
        """The sentence of one that must succeed, or that ends with a status."""
        ended = self.rescue(*arguments, feed=feed)
        said, silent = (ended.stdout, ended.stderr) if status == 0 else (ended.stderr, ended.stdout)
        assert (ended.returncode, silent, said.count("\n")) == (status, "", 1)
        return said

    def refused(self, *arguments: str, feed: str = "") -> str:
        said = self.done(*arguments, feed=feed, status=1)
        assert said.startswith("gateway-api: ")
        return said

    @property
    def is_enabled(self) -> bool:
        return self.daemon.check_access([]).enabled

    @property
    def daemon(self) -> CoreClient:
        return CoreClient(self.client)

    def password(self, username: str) -> str:
        """Its hash."""
        return self.daemon.get_login(username).password_hash or ""

    def commit(self, path: str, value: Any, confirm_seconds: int | None = None) -> None:
        self.daemon.edit([Edit("set", path, value)], None)
        self.daemon.with_origin("admin").commit(confirm_seconds=confirm_seconds)

    def running(self, section: str) -> Any:
        return json.loads(bytes(self.daemon.get_sections(GetConfiguration())[0][section]))

    def staged(self) -> str:
        return self.daemon.compare(None).diff

    def told(self) -> dict[str, Any]:
        """The last change that the core noted."""
        reply = json.loads(bytes(self.client.call("org.gatewayapi.core.ListChanges", {})))
        change: dict[str, Any] = reply["changes"][-1]
        return change


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    document = json.loads(FACTORY.read_text())
    document["api"]["users"] = [{"username": "admin", "password_hash": SECRET_HASH, "role": "admin"}]
    (tmp_path / "factory.json").write_text(json.dumps(document))
    socket = tmp_path / "core.sock"
    started = running_core(socket, tmp_path / "factory.json", "--sessions", "1")
    with started, closing(Client(socket, timeout=10)) as client:
        yield Gateway(socket, client)


def test_a_disabled_api_is_enabled(gateway: Gateway) -> None:
    gateway.commit("api.enabled", False)
    assert gateway.done("enable") == "The API is enabled.\n"
    assert gateway.is_enabled
    told = gateway.told()
    assert (told["action"], told["user"], told["author"]) == ("rescue.enable", "root", "root")
    assert told["before"] == {"diff": "- api.enabled = false\n+ api.enabled = true\n"}
    assert told["after"]["changes"] == 1
    before = gateway.daemon.get_sections(GetConfiguration())[1]
    assert gateway.done("enable") == "The API is enabled already; nothing was changed.\n"
    assert gateway.daemon.get_sections(GetConfiguration())[1] == before


def test_what_somebody_has_staged_is_neither_lost_nor_committed(gateway: Gateway) -> None:
    gateway.commit("api.enabled", False)
    gateway.daemon.edit([Edit("set", "system.hostname", "staged")], None)
    staged = gateway.staged()
    gateway.done("enable")
    gateway.done("password", "admin", feed="another one\n")
    assert gateway.staged() == staged
    assert gateway.running("system")["hostname"] != "staged"
    gateway.done("undo")
    assert gateway.staged() == staged
    gateway.daemon.with_origin("admin").commit()
    assert gateway.is_enabled
    assert gateway.running("system")["hostname"] == "staged"


def test_a_password_is_set_and_ends_the_user_s_tokens(gateway: Gateway) -> None:
    (before,) = gateway.daemon.check_access(["admin"]).users
    said = gateway.done("password", "admin", feed="a new one\n")
    assert said == "The password of admin, whose role is admin, is set.\n"
    assert verify("a new one", gateway.password("admin"))
    (after,) = gateway.daemon.check_access(["admin"]).users
    assert after.role == "admin"
    assert after.generation != before.generation
    told = gateway.told()
    assert told["action"] == "rescue.password"
    assert "api.users.admin.password_hash = ********" in told["before"]["diff"]


def test_a_password_of_nobody_is_refused_and_creates_an_admin_on_demand(gateway: Gateway) -> None:
    # A name with dots is a name.
    said = gateway.refused("password", "jo.doe", feed="x\n")
    assert "there is no user jo.doe; --create-admin makes one" in said
    assert gateway.daemon.check_access(["jo.doe"]).users == ()
    said = gateway.done("password", "--create-admin", "jo.doe", feed="watch\n")
    assert said == "There is a new user jo.doe with the role admin and this password.\n"
    (user,) = gateway.daemon.check_access(["jo.doe"]).users
    assert user.role == "admin"
    gateway.done("password", "jo.doe", feed="again\n")
    assert verify("again", gateway.password("jo.doe"))


def test_a_password_that_can_be_none_changes_nothing(gateway: Gateway) -> None:
    for feed in ("", "\n", "x" * 73):
        assert "a password must" in gateway.refused("password", "admin", feed=feed)
    assert verify("secret", gateway.password("admin"))


def test_a_password_is_typed_twice_and_not_shown(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_CORE_SOCKET", str(gateway.socket))
    status, shown = typed("typed one\n", "typed one\n", arguments=("rescue", "password", "admin"))
    assert (status, "typed one" in shown) == (0, False)
    assert verify("typed one", gateway.password("admin"))
    status, shown = typed("first\n", "second\n", arguments=("rescue", "password", "admin"))
    assert (status, "don't match" in shown) == (1, True)


def test_the_last_commit_is_undone_and_that_can_be_undone(gateway: Gateway) -> None:
    assert "nothing to undo" in gateway.refused("undo")
    gateway.commit("system.hostname", "wrong", confirm_seconds=600)
    said = gateway.done("undo")
    assert said == "The last commit is undone: 1 value changed back. To undo this, undo again.\n"
    assert gateway.running("system")["hostname"] != "wrong"
    assert gateway.told()["action"] == "rescue.undo"
    # Nor does it wait for a confirmation any more.
    assert gateway.daemon.compare(None).confirm_deadline is None
    gateway.done("undo")
    assert gateway.running("system")["hostname"] == "wrong"


def test_what_comes_back_after_a_rescue_is_rescued_too(gateway: Gateway) -> None:
    gateway.commit("api.enabled", False)
    gateway.commit("system.hostname", "for-a-while", confirm_seconds=2)
    gateway.done("enable")
    gateway.done("password", "admin", feed="a new one\n")
    wait_for("the return", lambda: gateway.running("system")["hostname"] != "for-a-while", 20)
    assert gateway.is_enabled
    assert verify("a new one", gateway.password("admin"))


def test_without_a_core_it_says_that_none_runs(tmp_path: Path) -> None:
    socket = tmp_path / "core.sock"
    with closing(Client(socket, timeout=1)) as client, socket_.socket(socket_.AF_UNIX) as left:
        nowhere = Gateway(socket, client)
        for arguments in (("enable",), ("password", "admin"), ("undo",)):
            said = nowhere.refused(*arguments, feed="x\n")
            assert f"the core daemon is not running: nothing listens at {socket}" in said
        # Or it has left its socket behind.
        left.bind(str(socket))
        assert "the core daemon is not running" in nowhere.refused("enable")


def test_only_root_may(gateway: Gateway) -> None:
    # Imported before it becomes another user: that one may not be able to read the modules.
    program = (
        "import locale, os, shutil, sys\nfrom gateway_api.cli.api import main\n"
        "os.setgid(65534)\nos.setuid(65534)\n"
        "sys.argv = ['gateway-api', 'rescue', 'enable']\nsys.exit(main())"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (1, "gateway-api: only root may do this\n")


def test_a_wrong_call_is_shown_how_it_is_called(gateway: Gateway) -> None:
    for arguments in ((), ("everything",), ("password",), ("enable", "now")):
        ended = gateway.rescue(*arguments)
        assert ended.returncode == 2
        assert ended.stderr.startswith("Usage: gateway-api ")


def test_gatewayctl_rescues_too(gateway: Gateway) -> None:
    gateway.commit("api.enabled", False)
    ended = gateway.rescue("enable", command=GATEWAYCTL)
    assert (ended.returncode, ended.stderr, gateway.told()["action"]) == (0, "", "rescue.enable")
    ended = gateway.rescue("password", "nobody", feed="x\n", command=GATEWAYCTL)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("gatewayctl: there is no user nobody; --create-admin makes one")
