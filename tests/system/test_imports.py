"""Which modules a process loads, and which it leaves until they are necessary."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import click
import pytest

from gateway_api.cli.program import LateCommands
from tests.support.stack import make_state, running_api

#: They take longer than all that the help needs.
LATE = {
    "gateway_api.wire.configuration",
    "importlib.metadata",
    "requests",
    "ssl",
}
_LOADED = """
import atexit, sys
atexit.register(lambda: sys.stderr.write(" ".join(sys.modules)))
sys.argv = sys.argv[1:]
from gateway_api.cli.ctl.__main__ import main
sys.exit(main())
"""


def loaded(*arguments: str, said: str, **environment: str) -> set[str]:
    """The modules of `gatewayctl` at its end, after it has said so."""
    ended = subprocess.run(
        [sys.executable, "-c", _LOADED, "gatewayctl", *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert ended.stdout.startswith(said)
    return set(ended.stderr.split())


def of_commands(modules: set[str]) -> set[str]:
    """Those that only commands need: their own, and the records with what makes them."""
    return {name for name in modules if re.match(r"gateway_api\.(cli\.ctl\.commands|wire)\b|msgspec\b", name)}


def test_the_help_loads_no_command() -> None:
    assert of_commands(loaded("--help", said="Usage: gatewayctl ")) == set()


def test_the_completion_of_a_command_s_name_loads_no_command() -> None:
    shell = {"_GATEWAYCTL_COMPLETE": "bash_complete", "COMP_WORDS": "gatewayctl sub", "COMP_CWORD": "1"}
    assert of_commands(loaded(said="plain,subscribers\n", **shell)) == set()


@pytest.mark.parametrize(
    ("word", "offered"), [("sub", "plain,subscribers\n"), ("--colu", "plain,--columns\n")]
)
def test_a_word_of_the_first_level_completes_to_what_begins_with_it(word: str, offered: str) -> None:
    shell = {"_GATEWAYCTL_COMPLETE": "bash_complete", "COMP_WORDS": f"gatewayctl {word}", "COMP_CWORD": "1"}
    ended = subprocess.run(
        [sys.executable, "-m", "gateway_api.cli.ctl"],
        env={**os.environ, **shell}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert ended.stdout == offered


def test_a_late_command_is_imported_once() -> None:
    made = []
    late = LateCommands(["a"], lambda name: made.append(name) or click.Command(name))
    assert late["a"] is late["a"]
    assert made == ["a"]


def test_a_command_loads_no_module_of_another() -> None:
    modules = loaded("health", "--help", said="Usage: gatewayctl health ")
    assert {name for name in modules if ".ctl.commands." in name} == {"gateway_api.cli.ctl.commands.status"}


@pytest.mark.parametrize("command", ["subscribers", "config", "config set"])
def test_a_help_loads_no_module_that_it_does_without(command: str) -> None:
    assert loaded(*command.split(), "--help", said="Usage: gatewayctl ") & LATE == set()


#: gunicorn's configuration, which also writes what a worker has at its fork, and what it loads after that.
_WATCHED = """
import json, os, sys
from gateway_api.serving import users
from gateway_api.web import app
globals().update({name: value for name, value in vars(users).items() if not name.startswith("_")})

def post_fork(server, worker):
    global at_fork
    users.post_fork(server, worker)
    at_fork = set(sys.modules), app.openapi.cache_info().currsize and sorted(vars(app.openapi()))

def post_worker_init(worker):
    inherited, document = at_fork
    with open(os.environ["SEEN"], "w") as file:
        json.dump({"loaded": sorted(set(sys.modules) - inherited), "document": document}, file)
"""
#: A worker imports no more than the rest of gevent, and of Python what that needs.
_SHARED = {"apispec", "flask", "gateway_api", "marshmallow", "prometheus_client", "requests", "urllib3"}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a worker has at its fork, and what it loads after that, until it serves requests."""
    folder = tmp_path_factory.mktemp("worker")
    make_state(folder / "state")
    (folder / "state" / "secret").write_text("0" * 64)
    (folder / "watched.py").write_text(_WATCHED)
    with running_api(
        folder / "no-core", folder / "state", workers=1,
        configuration=str(folder / "watched.py"), SEEN=str(folder / "seen"),
    ):  # fmt: skip
        return json.loads((folder / "seen").read_text())


def test_a_worker_shares_the_application_with_its_arbiter(worker: Any) -> None:
    assert {name for name in worker["loaded"] if name.partition(".")[0] in _SHARED} == set()
    assert "gevent.subprocess" in worker["loaded"]


def test_a_worker_shares_the_openapi_document_with_its_arbiter(worker: Any) -> None:
    assert worker["document"] == ["body", "compressed", "digest", "media_type"]


def test_the_application_has_no_http_client() -> None:
    """The hub has one. The alternative profile does without."""
    program = "import sys, gateway_api.web.app, gateway_api.serving.configuration; print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert {"requests", "urllib3"} & set(ended.stdout.split()) == set()
