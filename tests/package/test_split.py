"""Each of the packages without the others."""

import os
import subprocess
from pathlib import Path

import pytest

from gateway_contract.base.errors import CoreAbsent
from gateway_contract.version import VERSION
from tests.support.machine import booted
from tests.support.package import PROGRAMS, Installed, install
from tests.support.stack import Api

COMMAND_LINE = "/usr/lib/gatewayctl"
#: Those two modules are configurations of gunicorn: they read the settings of the machine.
_IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        if module.name not in ("gateway_api.serving.users", "gateway_api.serving.token"):
            importlib.import_module(module.name)
"""


@pytest.fixture(scope="module")
def unpacked(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files of each package: those of gateway-core with those of gateway-api, which it needs."""
    folder = tmp_path_factory.mktemp("unpacked")
    contents = {name: [name] for name in packages} | {"gateway-core": ["gateway-api", "gateway-core"]}
    for name, parts in contents.items():
        for part in parts:
            subprocess.run(["dpkg-deb", "--extract", packages[part], folder / name], check=True)
    return {name: folder / name for name in packages}


@pytest.mark.parametrize(
    ("package", "programs", "modules"),
    [
        ("gateway-api", PROGRAMS, ["gateway_api", "gateway_contract"]),
        ("gateway-core", PROGRAMS, ["gateway_api", "gateway_contract", "gateway_core"]),
        ("gateway-relay", "/usr/lib/gateway-relay", ["gateway_client", "gateway_contract", "gateway_relay"]),
        ("gatewayctl", COMMAND_LINE, ["gateway_client", "gateway_contract", "gatewayctl"]),
    ],
)
def test_a_package_has_its_modules_and_all_that_they_import(
    unpacked: dict[str, Path], package: str, programs: str, modules: list[str]
) -> None:
    environment = unpacked[package] / programs.lstrip("/")
    own = {path.name for path in environment.glob("lib/python3.*/site-packages/gateway*")}
    assert {name for name in own if not name.endswith(".dist-info")} == set(modules)
    command = [environment / "bin/python", "-I", "-B", "-c", _IMPORT_ALL, *modules]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_gatewayctl_has_the_ansible_collection_without_its_tests(unpacked: dict[str, Path]) -> None:
    def read(folder: Path) -> dict[str, str]:
        files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
        return {str(path.relative_to(folder)): path.read_text() for path in files}

    source = read(Path(__file__).parents[2] / "etc/ansible")
    collection = unpacked["gatewayctl"] / "usr/share/gateway-api/ansible"
    assert read(collection) == {path: text for path, text in source.items() if not path.startswith("tests/")}


def test_gatewayctl_alone_calls_a_gateway_in_each_format_and_has_no_flask(
    unpacked: dict[str, Path], api: Api, tmp_path: Path
) -> None:
    environment = unpacked["gatewayctl"] / COMMAND_LINE.lstrip("/")
    library = {path.name for path in environment.glob("lib/python3.*/site-packages/*")}
    assert {"click", "requests"} <= library
    assert library.isdisjoint({"flask", "gunicorn", "gevent", "marshmallow"})
    password = tmp_path / "password"
    password.write_text(api.environment["ADMIN_PASSWORD"])
    gateway = {key: api.environment[key] for key in ("GATEWAY_URL", "GATEWAY_CA")}
    own = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], **gateway}

    def gatewayctl(*words: str) -> str:
        command = [environment / "bin/python", "-m", "gatewayctl", *words]
        return subprocess.run(command, env=own, capture_output=True, text=True, timeout=60, check=True).stdout

    gatewayctl("login", "--user", api.environment["ADMIN_USER"], "--password-file", str(password))
    for output in ("table", "json", "csv", "jsonpath=$"):
        assert gatewayctl("subscribers", "list", "--output", output)


def test_gatewayctl_is_installed_alone_and_then_the_api_says_that_there_is_no_core(
    packages: dict[str, Path], tmp_path: Path
) -> None:
    with booted(tmp_path / "root") as machine, machine.network():
        install(machine, [packages["gatewayctl"]])
        assert machine.run("gatewayctl", "--version") == f"gatewayctl {VERSION}\n"
        assert "subscribers" in machine.run("gatewayctl", "--help")
        assert not (machine.root / PROGRAMS.lstrip("/")).exists()
        here = Installed(machine, install(machine, [packages["gateway-api"]]))
        assert CoreAbsent.HINT in here.said
        response = here.api().send("GET", "/health", None)
        assert (response.status_code, response.json()["hint"]) == (500, CoreAbsent.HINT)
        said = machine.attempt(
            *("env", "GATEWAY_CA=/etc/gateway-api/tls/certificate.pem", "gatewayctl", "health")
        )
        assert said.returncode != 0
        assert "gateway-core" in said.stdout
