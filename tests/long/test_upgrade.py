"""The page about upgrades: its lines replace version 0.1.0 by this version, and back, under a gateway with
sessions, a commit that waits for its confirmation, and webhooks with messages that wait."""

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests

from gateway_contract.version import VERSION
from tests.package.conftest import packages  # noqa: F401 - a fixture
from tests.package.test_linux_units import _PPPD as WAITING_PPPD
from tests.package.test_linux_units import AS_CORE, PPPOE, dial, first_configuration, lives, settle
from tests.support.dhcp_site import document
from tests.support.inside.gateway_world import PASSWORD
from tests.support.machine import Machine, booted
from tests.support.manual import steps
from tests.support.package import Installed, choose_the_lab, install, repacked, state_of
from tests.support.receivers import Received, Receiver, answer
from tests.support.stack import Api, wait_for
from tests.support.upgrades import OK, Disconnector, collector, command, ended_sessions, repeated, request
from tests.support.virtual_machine import Report, run_in_machine
from tests.support.webhooks import DOWN, register

REPOSITORY = Path(__file__).parents[2]
#: The last commit of version 0.1.0.
OLD_COMMIT = "7d70500397f4629894d7c3ea8457209a3d3164d2"
PAGE = steps("how-to/upgrade.md", "bash")
BEFORE, UPGRADE, CHECK, DOWNGRADE = (
    PAGE[title] for title in ("1. Before", "2. Upgrade", "3. Check", "Downgrade")
)
LOGIN = "gatewayctl login --user admin --password-file /etc/gateway-api/first-password"

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of version 0.1.0, from the history of this clone."""
    exists = ["git", "cat-file", "-e", f"{OLD_COMMIT}^{{commit}}"]
    if subprocess.run(exists, cwd=REPOSITORY, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("the clone does not have the commit of version 0.1.0")
    source = tmp_path_factory.mktemp("old")
    archive = subprocess.run(["git", "archive", OLD_COMMIT], cwd=REPOSITORY, capture_output=True, check=True)
    subprocess.run(["tar", "--extract"], cwd=source, input=archive.stdout, check=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "MAKE"))}
    built = subprocess.run(
        ["make", "deb"],
        cwd=source,
        env={**environment, "DPKG_DEB_COMPRESSOR_LEVEL": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (package,) = source.glob("build/*.deb")
    return package


class Gateway:
    """A machine on which the package of version 0.1.0 was installed, and the packages of both versions."""

    def __init__(self, machine: Machine, old: Path, packages: dict[str, Path]) -> None:  # noqa: F811
        self.machine = machine
        # As on a machine with all that the packages recommend, and without the question of apt-get.
        settings = 'APT::Install-Recommends "false";\nAPT::Get::Assume-Yes "true";\n'
        (machine.root / "etc/apt/apt.conf.d/99tests").write_text(settings)
        install(machine, [old])
        self._old, self._new = [old], list(packages.values())

    def start(self) -> Api:
        """Return a client, logged in; log gatewayctl in, too."""
        wait_for("the API", Installed(self.machine, "").serves)
        self.paste(LOGIN)
        return Installed(self.machine, "").api()

    def paste(self, lines: str, *, options: str = "-eu") -> str:
        settings = "export HOME=/root GATEWAY_CA=/etc/gateway-api/tls/certificate.pem; cd"
        return self.machine.run("bash", options, "-c", f"{settings}\n{lines}", timeout=900)

    def upgrade(self) -> None:
        self.provide(self._new)
        self.paste(UPGRADE)

    def downgrade(self, options: str = "-eu") -> None:
        self.provide(self._old)
        self.paste(DOWNGRADE, options=options)

    def provide(self, packages: Iterable[Path]) -> None:  # noqa: F811
        """Put packages into /root, where the page's lines look for them."""
        for former in (self.machine.root / "root").glob("*.deb"):
            former.unlink()
        for package in packages:
            shutil.copyfile(package, self.machine.root / "root" / package.name)

    def said(self, unit: str) -> str:
        return self.machine.run("journalctl", "--unit", unit, "--output=cat")


@pytest.fixture
def gateway(old: Path, packages: dict[str, Path], tmp_path: Path) -> Iterator[Gateway]:  # noqa: F811
    with booted(tmp_path / "root") as machine, machine.network():
        yield Gateway(machine, old, packages)


# The clients of the API, and what is stored


class Clients:
    """Clients of a gateway with simulated subscribers. `check` asserts what the page's table says of them."""

    def __init__(self, gateway: Gateway, api: Api, token: str) -> None:
        self._gateway, self._api, self._token = gateway, api, token
        listed = api.get("/subscribers?limit=10000", role=None, token=token)["sessions"]
        client = Installed(gateway.machine, "").api()
        self._disconnector = Disconnector(client, token, [one["id"] for one in listed])
        self._declared, self._registered = Receiver(), Receiver()
        self._failing = Receiver(answer(503))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the gateway for the block, which replaces the packages."""
        api, machine = self._api, self._gateway.machine
        with ExitStack() as stack:
            for receiver in (self._declared, self._registered, self._failing):
                stack.enter_context(receiver)
            urls = [self._declared.url, self._failing.url]
            edit(api, self._token, "api.webhooks.receivers", [{"url": url, "events": DOWN} for url in urls])
            commit(api, self._token)
            register(api, self._registered.url, DOWN)
            self._stream = stack.enter_context(collector(api, self._token))
            kept = stack.enter_context(requests.Session())
            clients = {
                "health": (partial(request, api, "/health"), 0.05),
                "kept": (partial(request, api, "/subscribers/summary", self._token, kept), 0.2),
                "gatewayctl": (partial(command, machine, "gatewayctl", "--version"), 1),
                "disconnect": (self._disconnector.attempt, 1),
            }
            self._samples = {
                name: stack.enter_context(repeated(attempt, interval))
                for name, (attempt, interval) in clients.items()
            }
            wait_for("messages that wait", lambda: len(set(self._failing.ids)) >= 2)
            waiting = set(self._disconnector.ended)
            yield
            number, ended = len(self._failing.received), len(self._disconnector.ended)
            wait_for("ends of sessions", lambda: len(self._disconnector.ended) >= ended + 3)
            last = self._disconnector.ended[-1]
            wait_for("the last end", lambda: last in self._streamed() and last in self._sent())

            def later() -> list[Received]:
                return self._failing.received[number:]

            # By then, the messages of before would have been repeated, too.
            wait_for("a retry", lambda: max(Counter(one.id for one in later()).values(), default=0) > 1)
            assert waiting.isdisjoint(ended_sessions(later()))
            listed = api.get("/webhooks", role=None, token=self._token)["webhooks"]
            assert [one["url"] for one in listed] == urls

    def _streamed(self) -> list[int]:
        return [one.data["id"] for one in self._stream.messages if one.name == "session_down"]

    def _sent(self) -> list[int]:
        return ended_sessions(self._declared.received)

    def check(self) -> None:
        for name, samples in self._samples.items():
            seconds = ", ".join(f"{outage:.1f}" for outage in samples.outages())
            print(f"{name}: {samples.successes} successes, {dict(samples.failures)}, outages of {seconds} s")
        # No other failure than those two, and no response of another status.
        for name in ("health", "kept", "disconnect"):
            assert self._samples[name].failures.keys() <= {"ConnectionError", "500"}, name
        assert 1 <= len(self._samples["health"].outages()) <= 2
        assert [one.name for one in self._stream.messages].count("gap") == 1
        ended, streamed, sent = self._disconnector.ended, self._streamed(), self._sent()
        lost, missed = set(ended) - set(streamed), set(ended) - set(sent)
        print(f"of {len(ended)} ends of sessions, not streamed: {lost}, not sent: {missed}")
        assert len(streamed) == len(set(streamed))


def test_what_clients_of_a_gateway_notice_and_what_is_kept(gateway: Gateway) -> None:
    choose_the_lab(gateway.machine)
    api = gateway.start()
    token = api.token("admin")
    gateway.paste(BEFORE)

    def read(path: str) -> Any:
        return api.get(path, role=None, token=token)

    def records() -> set[tuple[Any, ...]]:
        """Return what identifies the records of the history and of the audit log."""
        sessions = read("/subscribers/history?limit=1000")["sessions"]
        changes = read("/audit?limit=1000")["records"]
        return {(one["id"], one["started_at"]) for one in sessions} | {(one["id"],) for one in changes}

    for replace, version in ((gateway.upgrade, VERSION), (gateway.downgrade, "0.1.0")):
        clients = Clients(gateway, api, token)
        with clients.watching():
            filter = {"filter": {"type": "pppoe"}, "rate_down": "10mbit", "per_second": 1}
            job = api.send("POST", "/subscribers/rate", token=token, json=filter).json()["data"]
            edit(api, token, "system.hostname", version)
            deadline = commit(api, token, 900)
            edit(api, token, "qos.default_up", "33mbit" if version == VERSION else "34mbit")
            compared = read("/system/config/compare")["diff"]
            recorded = records()
            replace()
        clients.check()
        assert read("/system/version")["version"] == version
        assert read(f"/subscribers/jobs/{job['id']}")["state"] == "interrupted"
        after = read("/system/config/compare")
        assert (after["diff"], after["confirm_deadline"]) == (compared, deadline)
        assert records() >= recorded
        assert "admin" in gateway.paste("gatewayctl users list")
        gateway.paste(CHECK, options="-u")
        assert api.send("POST", "/system/config/confirm", token=token).ok
        assert read("/system/config")["system"]["hostname"] == version
    # A commit that nobody confirms.
    edit(api, token, "system.hostname", "unconfirmed")
    commit(api, token, 5)
    wait_for("the return", lambda: read("/system/config")["system"]["hostname"] == "0.1.0")


def edit(api: Api, token: str, path: str, value: Any) -> None:
    assert api.send("POST", "/system/config/set", token=token, json={"path": path, "value": value}).ok


def commit(api: Api, token: str, confirm_seconds: int | None = None) -> Any:
    """Commit the candidate, and return its deadline."""
    body = {"confirm_seconds": confirm_seconds} if confirm_seconds else {}
    answered = api.send("POST", "/system/config/commit", token=token, json=body)
    assert answered.ok, answered.text
    return answered.json()["data"]["confirm_deadline"]


# Subscribers


@pytest.fixture
def subscribers(gateway: Gateway) -> Iterator[Gateway]:
    """The gateway with a subscriber of each kind. The kernel may have neither PPP nor VLANs: a program that
    waits stands in for pppd, and pairs of interfaces for VLANs."""
    machine = gateway.machine
    first = first_configuration()
    first["api"]["users"] = json.loads((machine.root / "etc/gateway-api/first-users.json").read_text())
    (machine.root / "etc/gateway-api/first-configuration.json").write_text(json.dumps(first))
    (machine.root / "usr/sbin/pppd").write_text(WAITING_PPPD)
    for tag in ("", ".200", ".300"):
        machine.run("ip", "link", "add", f"trunk0{tag}", "type", "veth", "peer", "name", f"far{tag}")
        for name in ("trunk0", "far"):
            machine.run("ip", "link", "set", f"{name}{tag}", "up")
    machine.run("systemctl", "enable", "--now", "gateway-core-linux")
    wait_for("DHCP", lambda: state_of(machine, "gateway-dnsmasq") == "active")
    settle(machine, "trunk0.300", "100.64.0.1 100.64.0.16 secrets bng1\n")
    machine.run(*AS_CORE, "systemctl", "start", PPPOE)
    wait_for("pppoe-server", lambda: pids(machine, "pppoe-server"))
    machine.run("ip", "address", "add", "100.64.0.1/32", "dev", "trunk0.200")
    machine.run(
        *("busybox", "udhcpc", "-f", "-q", "-i", "far.200", "-s", "/bin/true", "-T", "1", "-t", "60", "-n")
    )
    yield gateway


def pids(machine: Machine, name: str) -> list[str]:
    return machine.attempt("pgrep", "--exact", name).stdout.split()


def test_sessions_stay_up(subscribers: Gateway) -> None:
    machine = subscribers.machine
    api = subscribers.start()
    token = api.token("admin")
    pppd, _ = dial(machine)

    def sessions() -> Any:
        return api.get("/subscribers", role=None, token=token)["sessions"]

    wait_for("the session", sessions)
    rate = {"rate_down": "7mbit", "expires_in": 86_400}
    assert api.send("PUT", f"/subscribers/{sessions()[0]['id']}/rate", token=token, json=rate).ok
    before = sessions(), pids(machine, "pppoe-server"), pids(machine, "dnsmasq")
    assert [one["rate_down"] for one in before[0]] == [7_000_000]
    attempts = {"PPPoE": partial(sign_on, machine), "DHCP": partial(rent, machine)}
    for replace in (subscribers.upgrade, subscribers.downgrade):
        with ExitStack() as stack:
            samples = {name: stack.enter_context(repeated(each, 0.3)) for name, each in attempts.items()}
            replace()
        print({name: (one.successes, dict(one.failures), one.outages()) for name, one in samples.items()})
        wait_for("the session", sessions)
        assert (sessions(), pids(machine, "pppoe-server"), pids(machine, "dnsmasq")) == before
        assert lives(machine, pppd)
        if replace == subscribers.upgrade:
            # Each lease was recorded.
            assert "failed to execute" not in subscribers.said("gateway-dnsmasq")
        assert state_of(machine, "gateway-core-linux") == "active"
        assert "Found left-over process" not in machine.run("journalctl", "--output=cat")


def sign_on(machine: Machine) -> str:
    """Sign on by PPPoE, and end the session."""
    discovered = machine.attempt("timeout", "60", "pppoe", "-I", "far.300", "-d").stdout.strip()
    if not discovered[:1].isdigit():
        return "refused"
    machine.attempt("pppoe", "-I", "far.300", "-k", "-e", discovered)
    return OK


def rent(machine: Machine) -> str:
    """Request a lease again."""
    client = ("busybox", "udhcpc", "-f", "-q", "-i", "far.200", "-s", "/bin/true", "-T", "1", "-t", "5", "-n")
    return OK if "lease of" in machine.attempt(*client).stdout else "no lease"


# A configuration that version 0.1.0 does not know


def test_a_core_that_does_not_start_after_a_downgrade_names_the_path_and_the_way_back_is_open(
    gateway: Gateway,
) -> None:
    choose_the_lab(gateway.machine)
    api = gateway.start()
    token = api.token("admin")
    gateway.upgrade()
    edit(api, token, "api.audit.forward", "journal")
    commit(api, token)
    gateway.downgrade(options="-u")
    assert state_of(gateway.machine, "gateway-core-lab") != "active"
    assert "api.audit: is not a known field" in gateway.said("gateway-core-lab")
    gateway.upgrade()
    wait_for("the API", Installed(gateway.machine, "").serves)
    gateway.paste(PAGE["What a downgrade loses"])
    gateway.downgrade()
    wait_for("the API", Installed(gateway.machine, "").serves)
    assert api.get("/system/version", role=None)["version"] == "0.1.0"


# Real sessions: the machine is emulated, and has PPP and VLANs


@pytest.fixture(scope="module")
def report(old: Path, packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Report:  # noqa: F811
    """What subscribers saw, after the machine ended."""
    shared = tmp_path_factory.mktemp("shared")
    for folder, files in (("old", [old]), ("new", packages.values())):
        (shared / folder).mkdir()
        for number, package in enumerate(files):
            # The emulator would take minutes to compile the modules.
            repacked(package, shared / f"{folder}{number}", compile_all).rename(
                shared / folder / package.name
            )
    first = document(1)
    first["cgnat"]["enabled"] = False
    (profile,) = first["demux"]["vlan_profiles"]
    pppoe = {"name": "pppoe", "type": "pppoe", "vlan_range": "100-399", "overhead_profile": "pppoe_ethernet"}
    first["demux"]["vlan_profiles"] = [{**profile, "vlan_range": "400-499"}, {**profile, **pppoe}]
    first["subscribers"] = {"local": [{"username": name, "password": PASSWORD} for name in ("alice", "bob")]}
    (shared / "first.json").write_text(json.dumps(first))
    (shared / "upgrade").write_text(f"cd new; {UPGRADE}")
    # As apt-get does, for which the emulator would take minutes.
    (shared / "downgrade").write_text("dpkg --remove gateway-core gatewayctl; dpkg --install old/*.deb")
    return run_in_machine("tests.support.inside.upgrade", shared, timeout=2400)


def compile_all(tree: Path) -> None:
    for library in tree.glob("usr/lib/gateway*/lib"):
        command = ["/usr/bin/python3", "-m", "compileall", "-q", "-s", str(tree), "-p", "/", str(library)]
        subprocess.run(command, check=True)


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("piece", ["upgraded", "downgraded"])
def test_no_packet_of_a_session_is_lost(report: Report, piece: str) -> None:
    before, seen = report.of("before"), report.of(piece)
    assert seen["status"] == 0, seen["said"]
    assert seen["lost"] == dict.fromkeys(seen["lost"], 0)
    assert seen["sessions"][:2] == before["sessions"]
    assert seen["programs"]["dnsmasq"] == before["programs"]["dnsmasq"]
    assert set(before["programs"]["pppoe-server"]) <= set(seen["programs"]["pppoe-server"])


def test_a_subscriber_signs_on_after_the_upgrade(report: Report) -> None:
    assert [one["username"] for one in report.of("later")["sessions"]][2:] == ["bob"]
