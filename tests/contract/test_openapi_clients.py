"""Clients that others' generators make of the document, against the running service."""

import json
import os
import shutil
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.support import npm
from tests.support.stack import Api

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[2] / "etc" / "openapi.json"
CLIENTS = Path(__file__).with_name("clients")

TYPESCRIPT = (
    "openapi-typescript@7.13.0",
    "openapi-fetch@0.17.0",
    "typescript@5.9.3",
    "@types/node@20.19.25",
)
PYTHON = "openapi-python-client==0.29.1"

_COMPILES = ("--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck")


def output(command: list[str | Path], folder: Path, **environment: str) -> str:
    """What a command says that must succeed."""
    ended = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def given(api: Api) -> list[str]:
    """What each client is told."""
    return [api.url, api.environment["ADMIN_USER"], api.environment["ADMIN_PASSWORD"]]


def as_it_is(api: Api, said: dict[str, Any]) -> None:
    """What a client says to have seen and done is so."""
    listed = api.get("/subscribers", params={"limit": 2, "sort": "-id"})["sessions"]
    session = api.get(f"/subscribers/{listed[0]['id']}")
    assert said == {
        "ids": [item["id"] for item in listed],
        "gateway": session["gateway"],
        "username": session["username"],
        "rate_down_bps": 250_000_000,
        "problems": ["rate_down"],
    }
    assert session["rate_down_bps"] == 250_000_000


@pytest.fixture(scope="module")
def typescript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiler, and the types of the document."""
    folder = tmp_path_factory.mktemp("typescript")
    programs = npm.installed(folder, *TYPESCRIPT)
    output([programs / "openapi-typescript", DOCUMENT, "--output", folder / "api.ts"], folder)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def test_a_client_in_typescript_works(api: Api, typescript: Path) -> None:
    shutil.copy(CLIENTS / "subscribers.ts", typescript)
    output(["node_modules/.bin/tsc", *_COMPILES, "subscribers.ts"], typescript)
    certificate = api.environment["GATEWAY_CA"]
    said = output(["node", "subscribers.js", *given(api)], typescript, NODE_EXTRA_CA_CERTS=certificate)
    as_it_is(api, json.loads(said))


def test_typescript_refuses_what_the_service_would(typescript: Path) -> None:
    right = (CLIENTS / "subscribers.ts").read_text()
    (typescript / "wrong.ts").write_text(right.replace('"250 Mbit"', "250_000_000"))
    command = ["node_modules/.bin/tsc", "--noEmit", *_COMPILES, "wrong.ts"]
    ended = subprocess.run(command, cwd=typescript, capture_output=True, text=True, check=False)
    (error,) = ended.stdout.splitlines()
    assert "Type 'number' is not assignable to type 'string'" in error


def test_a_client_in_python_works(api: Api, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    output([programs / "pip", "install", "--quiet", "--disable-pip-version-check", PYTHON], tmp_path)
    generate = [programs / "openapi-python-client", "generate", "--meta", "none", "--path", DOCUMENT]
    # Its last step is done by ruff, which is beside it.
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    warned = output([*generate, "--output-path", tmp_path / "gateway_client"], tmp_path, PATH=path)
    assert "Warning" not in warned
    client = CLIENTS / "subscribers.py"
    arguments = [*given(api), api.environment["GATEWAY_CA"]]
    said = output([programs / "python", client, *arguments], tmp_path, PYTHONPATH=str(tmp_path))
    as_it_is(api, json.loads(said))
