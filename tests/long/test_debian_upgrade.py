"""The page about the way from Debian 12 to 13: its lines upgrade a machine with a DHCP subscriber, and the
gateway is then as before. A backup of it restores on Debian 12."""

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.long.test_release import build
from tests.long.test_replace_hardware import Gateway, copy, prepare_linux
from tests.support.machine import Machine, booted
from tests.support.manual import steps
from tests.support.stack import wait_for

# With the build of a release.
pytestmark = pytest.mark.timeout(3000)

REPOSITORY = Path(__file__).parents[2]
STEPS = steps("how-to/debian-13.md", "bash")
BACKUP = steps("how-to/backup.md", "shell")
#: What install.md and the tutorial name, but for FRR, and the client of DHCP for the subscriber.
PACKAGES = (
    *("apt-utils", "busybox", "curl", "dbus", "dnsmasq-base", "dnsmasq-utils", "iproute2", "jq", "nftables"),
    *(
        "openssl",
        "pppoe",
        "procps",
        "python3",
        "polkitd",
        "ppp",
        "sqlite3",
        "systemd",
        "systemd-sysv",
        "tzdata",
    ),
)
#: Answers for apt, which asks a person.
ANSWERS = 'APT::Get::Assume-Yes "true"; Dpkg::Options:: "--force-confdef";\n'
HOST_NETWORK = ("--mount", "--uts", "--ipc", "--pid", "--cgroup")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a Debian 12."""
    folder = tmp_path_factory.mktemp("debian") / "12"
    subprocess.run(
        [REPOSITORY / "packaging/debian-chroot", "create", folder, "12", *PACKAGES], check=True, timeout=900
    )
    shutil.copyfile("/etc/resolv.conf", folder / "etc/resolv.conf")
    return folder


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """The packages of a release, by their Debian release."""
    release = build(REPOSITORY, tmp_path_factory.mktemp("release") / "clone", umask=0o022)
    return {number: sorted(release.glob(f"*+deb{number}_*.deb")) for number in ("12", "13")}


@contextmanager
def debian_12(folder: Path, root: Path, packages: dict[str, list[Path]]) -> Iterator[Gateway]:
    with booted(folder, root) as machine:
        for number, paths in packages.items():
            target = machine.root / "root" / f"debian-{number}"
            target.mkdir()
            for path in paths:
                shutil.copy(path, target)
        machine.run("sh", "-c", "dpkg --install /root/debian-12/*.deb", timeout=300)
        gateway = Gateway(machine, "eth1")
        gateway.prepare()
        (machine.root / "etc/apt/apt.conf.d/99answers").write_text(ANSWERS)
        yield gateway


def download(machine: Machine, lines: str) -> None:
    """Run lines of a page that use the network of this machine, which `machine` does not have."""
    command = machine.entering("bash", "-euc", lines)
    command = [each for word in command for each in (HOST_NETWORK if word == "--all" else (word,))]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=900)


class Watch:
    """Watches a gateway during a block: for how long the API did not reply, in seconds."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.failed_at: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def outage_seconds(self) -> float:
        return self.failed_at[-1] - self.failed_at[0] if self.failed_at else 0.0

    def _run(self) -> None:
        # Not by a program of the machine, which is upgraded, too.
        with self.gateway.machine.network():
            while not self._stop.wait(0.1):
                began = time.monotonic()
                if not serves(self.gateway):
                    self.failed_at.append(began)


def test_the_lines_upgrade_a_gateway_and_its_sessions_and_files_stay(
    root: Path, packages: dict[str, list[Path]], tmp_path: Path
) -> None:
    with debian_12(tmp_path / "machine", root, packages) as gateway:
        machine = gateway.machine
        prepare_linux(gateway)
        address = gateway.request_address()
        wait_for("the session", gateway.sessions)
        (before,) = gateway.sessions()
        device = machine.run("cat", f"/sys/class/net/{before['access_interface']}/ifindex")
        with machine.network():
            token = gateway.api().token("admin")
        files = kept(machine)

        download(machine, STEPS["2. Download"])
        alone = machine.run("apt-get", "--simulate", "full-upgrade")
        assert "Remv gateway-api " in alone
        began = time.monotonic()
        with Watch(gateway) as watch:
            machine.run("bash", "-euc", STEPS["3. Upgrade the packages"], timeout=1800)
            with machine.network():
                wait_for("the API", lambda: serves(gateway))
        print(f"upgrade: {time.monotonic() - began:.0f} s; no API for {watch.outage_seconds:.1f} s")

        assert machine.run("cat", "/etc/debian_version").startswith("13.")
        versions = machine.run("dpkg-query", "--show", "--showformat", "${Version} ${Status}\n", "gateway*")
        assert set(versions.splitlines()) == {f"{deb13_version(packages)} install ok installed"}
        with machine.network():
            assert gateway.api().send("GET", "/subscribers", token=token).ok
        wait_for("the session", gateway.sessions)
        assert gateway.sessions() == [before]
        assert machine.run("cat", f"/sys/class/net/{before['access_interface']}/ifindex") == device
        assert kept(machine) == files
        assert gateway.request_address("-r", address) == address
        # With the nft of Debian 13.
        machine.run("nft", "flush", "ruleset")
        wait_for("the filter", lambda: "inet gateway\n" in machine.run("nft", "list", "tables"))

        gateway.paste(BACKUP["Everything"])
        with debian_12(tmp_path / "former", root, packages) as former:
            folder = copy(gateway, former)
            restore, _, _ = BACKUP["Restore everything"].partition("systemctl enable --now gateway-core-lab")
            former.paste(f"BACKUP={folder}\n{restore}systemctl enable --now gateway-core-linux")
            wait_for("the session", former.sessions)
            with former.machine.network():
                assert former.api().send("GET", "/subscribers", token=token).json()["data"]["sessions"]
            assert [session["ip_address"] for session in former.sessions()] == [address]


def deb13_version(packages: dict[str, list[Path]]) -> str:
    return packages["13"][0].name.split("_")[1]


def serves(gateway: Gateway) -> bool:
    try:
        return gateway.api().send("GET", "/health", None).ok
    except requests.ConnectionError:
        return False


def kept(machine: Machine) -> str:
    """The digests of the operator's files."""
    return machine.run("sh", "-c", "find /etc/gateway-api -type f | sort | xargs sha256sum")
