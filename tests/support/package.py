"""The Debian packages on a machine: their installation, and a client of the API."""

import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from tests.support.machine import Machine
from tests.support.stack import Api

NAMES = ("gateway-api", "gateway-core", "gateway-relay", "gatewayctl")
PROGRAMS = "/usr/lib/gateway-api"


@dataclass
class Installed:
    """A machine with the packages. `said` is the output of the installation, `alone` the response of health
    without a core, and `logged` the API's log at that time."""

    machine: Machine
    said: str
    alone: Any = None
    logged: str = ""

    def api(self) -> Api:
        """Return a new client, set up as the installation's output says."""
        etc = self.machine.root / "etc" / "gateway-api"
        return Api(
            {
                "GATEWAY_URL": "https://localhost:8443",
                "GATEWAY_CA": str(etc / "tls" / "certificate.pem"),
                "ADMIN_USER": "admin",
                "ADMIN_PASSWORD": (etc / "first-password").read_text().strip(),
            }
        )

    def serves(self) -> bool:
        try:
            return self.api().send("GET", "/health", None).ok
        except requests.ConnectionError:
            return False


def find_packages(build: Path) -> dict[str, Path]:
    """Return the packages of a build, by name."""
    found = {}
    for name in NAMES:
        (found[name],) = build.glob(f"{name}_*.deb")
    return found


def install(machine: Machine, packages: Iterable[Path], *options: str) -> str:
    """Install packages with one command, and return its output."""
    copies = []
    for package in packages:
        shutil.copyfile(package, machine.root / "root" / package.name)
        copies.append(f"/root/{package.name}")
    return machine.run("dpkg", *options, "--install", *copies)


def repacked(package: Path, tree: Path, change: Callable[[Path], None]) -> Path:
    """Build a modified copy of the package, and return its path."""
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
    change(tree)
    path = tree.with_name(f"{tree.name}.deb")
    subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "--build", tree, path], check=True)
    return path


def choose_the_lab(machine: Machine) -> None:
    machine.run("systemctl", "enable", "--now", "gateway-core-lab")


def state_of(machine: Machine, service: str) -> str:
    return machine.attempt("systemctl", "is-active", service).stdout.strip()
