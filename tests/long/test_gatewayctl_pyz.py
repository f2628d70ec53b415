"""gatewayctl.pyz on bare Debian 12 and 13: its essential packages, and python3."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_contract.version import VERSION
from tests.support.manual import ROOT
from tests.support.one_file import lines_to_install
from tests.support.stack import Api, running_stack


class Debian:
    """A folder with a bare Debian, in which commands run with the network of this machine."""

    def __init__(self, path: Path, release: str) -> None:
        self.path = path
        command = [ROOT / "packaging/debian-chroot", "create", path, release, "python3"]
        made = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert made.returncode == 0, made.stdout[-2000:]
        # The installer of Debian writes it.
        (path / "etc/hosts").write_text("127.0.0.1 localhost\n")
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/root/.local/bin", "HOME": "/root"}

    def run(self, *words: str, user: str = "root", status: int = 0, **environment: str) -> str:
        """Run a command, and return all that it prints."""
        ended = subprocess.run(
            ["chroot", f"--userspec={user}", str(self.path), *words],
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert ended.returncode == status, ended.stdout
        return ended.stdout


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running_stack(tmp_path_factory.mktemp("state"), sessions=20) as (api, _):
        yield api


@pytest.fixture(scope="module", params=["12", "13"])
def debian(
    request: pytest.FixtureRequest, gateway: Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Debian]:
    """With the file as `gatewayctl`, and logged in to a gateway."""
    folder = tmp_path_factory.mktemp(request.param)
    made = Debian(folder / "root", request.param)
    # A bare Debian has no curl. The other lines run there.
    download, *others = lines_to_install(gateway).splitlines()
    home = made.path / "root"
    subprocess.run(["bash", "-euc", download], cwd=home, check=True, capture_output=True)
    shutil.copyfile(gateway.environment["GATEWAY_CA"], home / "bng1.pem")
    (home / "password").write_text(gateway.environment["ADMIN_PASSWORD"])
    assert "gatewayctl.pyz: OK" in made.run("bash", "-euc", f"cd\n{others[0]}\n{others[1]}")
    login = ("--user", gateway.environment["ADMIN_USER"], "--password-file", "/root/password")
    made.run("gatewayctl", "login", "--url", gateway.url, "--ca", "/root/bng1.pem", *login)
    yield made
    shutil.rmtree(made.path)


def test_nothing_but_python_is_needed(debian: Debian) -> None:
    installed = debian.run("dpkg-query", "--show", "--showformat", "${Package}\n").split()
    assert "python3" in installed
    assert {"curl", "openssl", "ca-certificates", "python3-venv", "python3-pip"}.isdisjoint(installed)
    assert debian.run("gatewayctl", "--version") == f"gatewayctl {VERSION}\n"
    assert "Find and change the sessions of subscribers." in debian.run("gatewayctl", "--help")


def test_sessions_are_listed_and_disconnected(debian: Debian) -> None:
    first, second, *_ = debian.run("gatewayctl", "subscribers", "list", "-o", "jsonpath=$[*].id").split()
    assert "2 sessions" in debian.run(
        *("gatewayctl", "subscribers", "disconnect", "--dry-run", f"id:{first}", f"id:{second}")
    )
    assert "disconnected" in debian.run("gatewayctl", "subscribers", "disconnect", "--yes", f"id:{first}")


def test_a_password_is_hashed_by_the_compiled_module(debian: Debian) -> None:
    words = ("jo", "--role", "operator", "--password-file", "/root/password")
    assert "in the candidate" in debian.run("gatewayctl", "users", "add", *words)
    debian.run("gatewayctl", "config", "discard", "--yes")


def test_the_completion_is_a_program_that_bash_reads(debian: Debian) -> None:
    assert debian.run("bash", "-euc", 'eval "$(gatewayctl completion bash)"; complete -p gatewayctl')


def test_a_rescue_says_that_it_works_on_the_gateway_only(debian: Debian) -> None:
    assert "a rescue works only on the gateway itself" in debian.run(
        "gatewayctl", "rescue", "enable", status=1
    )


def test_a_user_without_a_home_needs_no_cache(debian: Debian) -> None:
    shutil.copyfile(debian.path / "root/gatewayctl.pyz", debian.path / "srv/gatewayctl.pyz")
    shown = debian.run("python3", "/srv/gatewayctl.pyz", "--version", user="nobody", HOME="/nonexistent")
    assert shown == f"gatewayctl.pyz {VERSION}\n"
    assert list((debian.path / "tmp").iterdir()) == []


def test_a_minimal_python_gets_the_package_that_it_needs(debian: Debian) -> None:
    # The package python3-minimal has no shutil, for example.
    (module,) = (debian.path / "usr/lib").glob("python3.*/shutil.py")
    module.rename(module.with_suffix(".away"))
    try:
        shown = debian.run("gatewayctl", "--version", status=1)
    finally:
        module.with_suffix(".away").rename(module)
    assert shown.endswith("on Debian: apt-get install python3\n")
    assert shown.count("\n") == 1
