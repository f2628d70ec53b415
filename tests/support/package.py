"""The Debian package on a machine: what installs it, and a client of what it starts."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from tests.support.machine import Machine
from tests.support.stack import Api

PROGRAMS = "/usr/lib/gateway-api"


@dataclass
class Installed:
    """A machine with the package on it. `said` is what the installation did, `alone` what health answered
    before there was a core, and `logged` what the API's log had then."""

    machine: Machine
    said: str
    alone: Any = None
    logged: str = ""

    def api(self) -> Api:
        """A new client, as an operator has it who has read what the installation said."""
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


def install(machine: Machine, package: Path, *options: str) -> str:
    target = machine.root / "root" / package.name
    shutil.copyfile(package, target)
    return machine.run("dpkg", *options, "--install", f"/root/{package.name}")


def repacked(package: Path, tree: Path, change: Callable[[Path], None]) -> Path:
    """Another package, of what is in this one after a change."""
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
    change(tree)
    path = tree.with_suffix(".deb")
    subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "--build", tree, path], check=True)
    return path


def choose_the_lab(machine: Machine) -> None:
    machine.run("systemctl", "enable", "--now", "gateway-core-lab")


def state_of(machine: Machine, service: str) -> str:
    return machine.attempt("systemctl", "is-active", service).stdout.strip()
