"""Debian 13, with its Python 3.13 and systemd 257: the first command answers there, and the packages build,
install and serve, on a core that systemd's own client of varlink can ask."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.machine import Machine, booted
from tests.support.package import NAMES, Installed, find_packages, install
from tests.support.stack import Api, free_port, read_environment, wait_for

REPOSITORY = Path(__file__).parents[2]
GUIDE = (REPOSITORY / "docs/how-to/another-core.md").read_text()
#: What README.md asks for, and the program of a unit.
NEEDED = ("python3", "python3-venv", "make", "openssl", "curl", "dnsmasq-base")
CHROOT = str(REPOSITORY / "packaging/debian-chroot")


def dependencies() -> list[str]:
    """Of the packages: what a machine must have to take them."""
    control = (REPOSITORY / "packaging" / "debian" / "control").read_text()
    depends = ",".join(re.findall(r"(?m)^Depends: (.*)$", control))
    return sorted({word.split()[0] for word in depends.split(",")} - {*NAMES, "${python3:Depends}"})


class Root:
    """A folder with Debian 13 and a clone of the source, in which commands run as on a machine of their own
    that has this one's network."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = path / "root" / "gateway-api"

    def command(self, *words: str) -> list[str]:
        return [CHROOT, "run", str(self.path), *words]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Root:
    made = Root(tmp_path_factory.mktemp("debian") / "13")
    done = subprocess.run(
        [CHROOT, "create", str(made.path), "13", *NEEDED, *dependencies()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(made.source)], check=True)
    # The documentation is the same on all releases.
    shutil.copytree(REPOSITORY / "build/html", made.source / "build/html")
    shutil.copyfile(REPOSITORY / "build/html.inputs", made.source / "build/html.inputs")
    return made


def test_the_first_command_answers_without_a_compiler_and_without_tools_of_developers(root: Root) -> None:
    log = root.path / "log"
    settings = (f"PORT={free_port()}", "SESSIONS=20", "ARRIVALS=0")
    with log.open("wb") as said:
        process = subprocess.Popen(
            root.command("env", *settings, "make", "-C", "/root/gateway-api", "run"),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        published = root.source / ".run" / "environment"

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            return published.exists()

        wait_for("make run on Debian 13", ready, 300)
        found = read_environment(published)
        api = Api({**found, "GATEWAY_CA": f"{root.path}{found['GATEWAY_CA']}"})
        assert api.get("/subscribers/summary")["total"] == 20
        assert api.send("DELETE", "/subscribers/1").ok
    finally:
        process.kill()
        process.wait(60)
    assert "No C compiler" in log.read_text()
    packages = {path.name for path in root.source.glob(".venv/lib/python3.13/site-packages/*")}
    assert {"flask", "varlink"} <= packages
    assert packages.isdisjoint({"pytest", "mypy", "playwright", "hypothesis", "schemathesis"})


@pytest.fixture(scope="module")
def packages(root: Root) -> dict[str, Path]:
    built = subprocess.run(
        root.command("make", "-C", "/root/gateway-api", "deb"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert built.returncode == 0, built.stdout
    return find_packages(root.source / "build")


@pytest.fixture(scope="module")
def machine(
    root: Root, packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """With the packages installed, and the lab started."""
    with booted(tmp_path_factory.mktemp("machine") / "root", root.path) as up:
        install(up, packages.values())
        up.run("systemctl", "start", "gateway-core-lab.service")
        yield up


@pytest.fixture
def api(machine: Machine) -> Iterator[Api]:
    installed = Installed(machine, "")
    with machine.network():
        wait_for("the API on Debian 13", installed.serves, 20)
        yield installed.api()


def test_the_packages_serve_before_and_after_a_reload(machine: Machine, api: Api) -> None:
    assert machine.run("systemctl", "--version").startswith("systemd 257 ")
    assert "python3 (>= 3.13), python3 (<< 3.14)" in machine.run("dpkg", "--status", "gateway-api")
    units = [f"/usr/lib/systemd/system/{unit.name}" for unit in (REPOSITORY / "systemd").glob("*.service")]
    assert machine.run("systemd-analyze", "verify", *units) == ""
    assert api.get("/subscribers?limit=10000", role="admin")["count"] > 100
    machine.run("systemctl", "reload", "gateway-api")
    assert api.get("/subscribers/summary", role="admin")["total"] > 100


def documented(verb: str) -> str:
    """The guide's line with a verb of varlinkctl."""
    (line,) = re.findall(rf"(?m)^    (varlinkctl {verb} [^-].*)$", GUIDE)
    return str(line)


def ask(machine: Machine, verb: str) -> str:
    return machine.run("sh", "-euc", f"cd /root/gateway-api && {documented(verb)}")


def test_varlinkctl_shows_the_interface_as_the_file_has_it_and_calls_a_method(
    machine: Machine, api: Api
) -> None:
    def methods(text: str) -> set[str]:
        return set(re.findall(r"(?m)^(?:method|error|type) (\w+)", text))

    said = ask(machine, "info")
    assert "Product: Subscriber Gateway core" in said
    assert "org.gatewayapi.core" in said
    file = (REPOSITORY / "gateway_contract" / "org.gatewayapi.core.varlink").read_text()
    assert methods(file)
    assert methods(ask(machine, "introspect")) == methods(file)
    ask(machine, "validate-idl")
    assert json.loads(ask(machine, "call"))["active_sessions"] == api.get("/health", None)["active_sessions"]


def record(line: str) -> Any:
    """One of a sequence of JSON texts (RFC 7464)."""
    return json.loads(line.removeprefix("\x1e"))


def test_varlinkctl_follows_events(machine: Machine, api: Api) -> None:
    command = machine.entering(*shlex.split(documented("call --more --timeout=infinity")))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout
        assert record(following.stdout.readline())["events"] == []
        assert api.send("DELETE", "/subscribers/13").ok
        seen = record(following.stdout.readline())
        following.kill()
    assert 13 in [event["id"] for event in seen["events"]]
