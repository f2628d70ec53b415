"""The daemons beside the core at a commit. The stand-in of systemctl is a program that writes down what it is
asked, and refuses what a test says."""

import copy
import os
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway_contract.base.errors import StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core.impact import ServiceAction, ServiceImpact
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.daemons import accel_ppp
from gateway_core.gateways.linux.daemons.accel_command_line import CommandLine, Endpoint
from gateway_core.gateways.linux.daemons.accel_ppp import AccelPppDaemon
from gateway_core.gateways.linux.daemons.daemon import PlacedFiles, Rollback, ServiceDaemon
from gateway_core.gateways.linux.daemons.dnsmasq import DnsmasqDaemon
from gateway_core.gateways.linux.daemons.frr import FrrDaemon, FrrFolders
from gateway_core.gateways.linux.daemons.linux_services import LinuxServices
from gateway_core.gateways.linux.daemons.pppd import PppdFiles
from gateway_core.gateways.linux.daemons.pppoe_server import PppoeServers
from gateway_core.gateways.linux.daemons.source import SourceRefused, SourceUnavailable
from gateway_core.gateways.linux.daemons.systemd import Systemd
from gateway_core.gateways.linux.program import CommitLimits
from tests.support.documents import put
from tests.support.namespaces import ip, network_namespace
from tests.support.rendered import RADIUS, render
from tests.support.running_accel import LOCALHOST, Accel, running_accel
from tests.support.stack import PATIENCE, free_port, wait_for
from tests.support.workspaces import no_file_longer_than

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to make interfaces")

_SYSTEMCTL = """#!/bin/sh
shift 3
echo "$*" >> {0}/asked
[ ! -e {0}/refused ] || ! echo "$*" | grep -qf {0}/refused || {{ echo "Job for it failed." >&2; exit 1; }}
[ ! -e {0}/hangs ] || ! echo "$*" | grep -qf {0}/hangs || while [ -e {0}/hangs ]; do sleep 0.1; done
"""

#: A machine on which accel-ppp is no unit.
NO_SYSTEMD = Systemd(["no-such-systemctl"])


@dataclass
class World:
    folder: Path
    systemd: Systemd
    configuration: Configuration

    def asked(self) -> list[str]:
        """What systemd was asked since the last look."""
        file = self.folder / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines

    def refuse(self, pattern: str | None, name: str = "refused") -> None:
        (self.folder / name).unlink(missing_ok=True)
        if pattern is not None:
            (self.folder / name).write_text(f"{pattern}\n")

    def hang(self, pattern: str | None) -> None:
        """Until the next call."""
        self.refuse(pattern, "hangs")

    def units(self, *started: str) -> PppoeServers:
        """As after a start of the core. Starts those servers."""
        units = PppoeServers(self.systemd, self.folder / "pppoe", is_source=True)
        units.set_configuration(self.configuration)
        if started:
            units.start(started)
            self.asked()
        return units

    def placed(self) -> PlacedFiles:
        return PlacedFiles(self.folder / "services")

    def settings(self) -> dict[str, str]:
        files = (self.folder / "pppoe").iterdir()
        return {path.name: path.read_text() for path in files if path.name != "to-reload"}

    def files(self) -> dict[str, str]:
        folder = self.folder / "services"
        return {path.name: path.read_text() for path in folder.iterdir()} if folder.exists() else {}

    def services(self, apply: float = 30, put_back: float = 30) -> LinuxServices:
        daemons = [PppdFiles(self.placed()), self.units(), self.dhcp(is_source=True)]
        return LinuxServices(daemons, apply, put_back)

    def dhcp(self, *, is_source: bool) -> DnsmasqDaemon:
        return DnsmasqDaemon(self.systemd, self.placed(), is_source=is_source)

    def without_sources(self) -> LinuxServices:
        """After a change to accel-ppp."""
        units = PppoeServers(self.systemd, self.folder / "pppoe", is_source=False)
        return LinuxServices([units, self.dhcp(is_source=False)], 30, 30)


@pytest.fixture
def world(tmp_path: Path, document: dict[str, Any]) -> Iterator[World]:
    program = tmp_path / "systemctl"
    program.write_text(_SYSTEMCTL.format(tmp_path))
    program.chmod(0o755)
    with network_namespace():
        ip(
            "link add trunk0.300 type veth peer name far.300",
            "link add trunk0.301 type veth peer name far.301",
        )
        yield World(tmp_path, Systemd([str(program)], seconds=5), of(document))


def limits(apply: float = 30, put_back: float = 30) -> CommitLimits:
    return CommitLimits.of(apply, put_back)


def run_by(
    daemon: ServiceDaemon, configuration: Configuration, within: CommitLimits | None = None
) -> Rollback:
    """As a commit does: after an error, all is as before."""
    files = {} if isinstance(daemon, PppoeServers) else render(configuration)
    with Rollback() as rollback:
        daemon.apply(files, configuration, within or limits(), rollback)
        return rollback.pop_all()


def apply(services: LinuxServices, configuration: Configuration) -> None:
    """As a commit."""
    services.apply(services.render(configuration), configuration)


def of(document: dict[str, Any], **changes: Any) -> Configuration:
    changed = copy.deepcopy(document)
    for path, value in changes.items():
        put(changed, path.replace("__", "."), value)
    return RunningConfiguration.of(changed).sections


# PPPoE


def test_each_vlan_has_a_server_with_a_block_of_its_own(world: World) -> None:
    units = world.units()
    for _ in range(2):
        units.start(["trunk0.300", "trunk0.301"])
    assert world.settings() == {
        "trunk0.300": "100.64.0.1 100.64.0.16 secrets bng1\n",
        "trunk0.301": "100.64.0.1 100.64.0.32 secrets bng1\n",
    }
    assert world.asked() == ["start gateway-pppoe@trunk0.300.service gateway-pppoe@trunk0.301.service"] * 2
    for _ in range(2):
        units.stop("trunk0.300")
    before = world.settings()
    assert before.keys() == {"trunk0.301"}
    # After a restart of the core, it keeps its block.
    units = world.units("trunk0.301")
    assert world.settings() == before
    units.start(["trunk0.300"])
    assert world.settings()["trunk0.300"].split()[1] == "100.64.0.16"


def test_the_block_of_a_server_that_did_not_stop_stays_taken(world: World, document: dict[str, Any]) -> None:
    units = world.units("trunk0.300")
    world.refuse("^st")
    with pytest.raises(SourceRefused, match="Job for it failed"):
        units.stop("trunk0.300")
    with pytest.raises(SourceRefused, match="Job for it failed"):
        units.start(["trunk0.301"])
    assert world.settings()["trunk0.301"].split()[1] == "100.64.0.32"
    world.configuration = of(document, cgnat__source_range="10.0.0.0/27")
    with pytest.raises(SourceRefused, match="no free block"):
        world.units().start(["trunk0.302"])


def test_vlans_share_a_small_range_in_smaller_blocks_until_a_commit_makes_room(
    world: World, document: dict[str, Any]
) -> None:
    world.configuration = of(document, cgnat__source_range="10.0.0.0/26")
    units = world.units("trunk0.300")
    # A sign-on may go on, with an address that the other VLAN gets later.
    with pytest.raises(SourceRefused, match="in smaller blocks now"):
        units.start(["trunk0.301"])
    assert world.settings() == {"trunk0.300": "10.0.0.1 10.0.0.16/29 secrets bng1\n"}
    assert world.asked() == ["try-reload-or-restart gateway-pppoe@trunk0.300.service"]
    units.start(["trunk0.301"])
    assert world.settings()["trunk0.301"] == "10.0.0.1 10.0.0.24/29 secrets bng1\n"
    # Another start of the core, and another VLAN, leave them as they are.
    units = world.units()
    units.stop("trunk0.301")
    units.start(["trunk0.301"])
    assert world.settings()["trunk0.300"] == "10.0.0.1 10.0.0.16/29 secrets bng1\n"
    run_by(units, of(document, cgnat__source_range="10.0.0.0/16"))
    blocks = {interface: settings.split()[1] for interface, settings in world.settings().items()}
    assert blocks == {"trunk0.300": "10.0.0.16", "trunk0.301": "10.0.0.32"}


def test_other_settings_reload_the_servers_and_keep_their_blocks(
    world: World, document: dict[str, Any]
) -> None:
    units = world.units("trunk0.300", "trunk0.301")
    document["radius"] = RADIUS
    document["subscribers"] = {"dns_servers": ["192.0.2.53", "192.0.2.54"]}
    after = of(document, system__hostname="bng9")
    assert units.preview_action({}, after) == "reload"
    run_by(units, after)
    assert world.settings() == {
        "trunk0.300": "100.64.0.1 100.64.0.16 radius bng9\n192.0.2.53 192.0.2.54\n",
        "trunk0.301": "100.64.0.1 100.64.0.32 radius bng9\n192.0.2.53 192.0.2.54\n",
    }
    units_asked = "gateway-pppoe@trunk0.300.service gateway-pppoe@trunk0.301.service"
    assert world.asked() == [f"try-reload-or-restart {units_asked}"]
    # What is of no concern to PPPoE leaves the servers alone.
    document["system"]["hostname"] = "bng9"
    other = of(document, qos__default_down="1gbit")
    assert units.preview_action({}, other) is None
    run_by(units, other)
    assert world.asked() == []
    run_by(units, of(document, cgnat__source_range="10.8.0.0/16"))
    assert world.settings()["trunk0.300"].startswith("10.8.0.1 10.8.0.16 ")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_servers_that_do_not_reload_have_their_settings_as_before_and_reload_later(
    world: World, document: dict[str, Any], is_restarted: bool
) -> None:
    units = world.units("trunk0.300")
    before = world.settings()
    world.refuse("^try-reload")
    with pytest.raises(StepFailed) as failed:
        run_by(units, of(document, system__hostname="bng9"))
    assert (failed.value.step, failed.value.reason) == (
        "reload gateway-pppoe@trunk0.300.service",
        "Job for it failed.",
    )
    assert world.settings() == before
    world.refuse(None)
    world.asked()
    if is_restarted:
        units = world.units()
    # They may run by the commit that failed.
    assert units.preview_action({}, world.configuration) == "reload"
    run_by(units, world.configuration)
    assert world.asked() == ["try-reload-or-restart gateway-pppoe@trunk0.300.service"]
    assert world.units().preview_action({}, world.configuration) is None


def test_no_vlan_gets_addresses_that_a_server_with_a_larger_block_may_give_away(
    world: World, document: dict[str, Any]
) -> None:
    world.configuration = of(document, cgnat__source_range="10.8.0.0/26")
    units = world.units("trunk0.300")
    world.refuse("^try-reload")
    for _ in range(2):
        with pytest.raises(SourceRefused, match="Job for it failed"):
            units.start(["trunk0.301"])
    world.refuse(None)
    world.asked()
    with pytest.raises(SourceRefused, match="have only now read their settings"):
        units.start(["trunk0.301"])
    assert world.asked() == ["try-reload-or-restart gateway-pppoe@trunk0.300.service"]
    units.start(["trunk0.301"])
    assert world.asked() == ["start gateway-pppoe@trunk0.301.service"]


def test_vlans_that_are_gone_give_their_blocks_back_at_the_start_of_the_core(world: World) -> None:
    world.units("trunk0.300", "trunk0.301")
    ip("link del trunk0.300", "link del trunk0.301")
    run_by(world.units(), world.configuration)
    (stop,) = world.asked()
    assert {*stop.split()} == {"stop", *(f"gateway-pppoe@trunk0.{id}.service" for id in (300, 301))}
    assert world.settings() == {}


def test_a_commit_does_not_wait_for_a_start_that_hangs(world: World, document: dict[str, Any]) -> None:
    world.hang("^start")
    world.systemd = Systemd([str(world.folder / "systemctl")], seconds=0.5)
    with pytest.raises(SourceUnavailable, match="did not end within"):
        world.units().start(["trunk0.300"])
    world.asked()
    world.systemd = Systemd([str(world.folder / "systemctl")], seconds=60)
    units = world.units()
    with ThreadPoolExecutor() as pool:
        start = pool.submit(units.start, ["trunk0.300"])
        wait_for("the start", world.asked)
        try:
            after = of(document, system__hostname="bng9")
            with pytest.raises(StepFailed, match="another change to it did not end within"):
                run_by(units, after, limits(0.5, 1))
        finally:
            world.hang(None)
        start.result()
    assert world.settings() == {"trunk0.300": "100.64.0.1 100.64.0.16 secrets bng1\n"}


# accel-ppp


class Switch:
    """A commit that sets `radius.server`: accel-ppp has to load other modules."""

    def __init__(self, world: World, accel: Accel, document: dict[str, Any]) -> None:
        self.world, self.accel = world, accel
        self.local, self.radius = world.configuration, of({**document, "radius": RADIUS})

    def daemon(self, systemd: Systemd = NO_SYSTEMD, **more: Any) -> AccelPppDaemon:
        """As after a start of the core."""
        return AccelPppDaemon(self.world.placed(), self.accel.command_line(), systemd, **more)

    def apply(self, daemon: AccelPppDaemon, *configurations: Configuration) -> Rollback:
        for configuration in configurations:
            rollback = run_by(daemon, configuration)
        return rollback

    def restarts(self) -> int:
        return self.accel.commands().count("restart hard")


@pytest.fixture
def accel(world: World) -> Iterator[Accel]:
    """In the network of the world."""
    with running_accel() as running:
        yield running


@pytest.fixture
def switch(world: World, document: dict[str, Any], accel: Accel) -> Switch:
    return Switch(world, accel, document)


def test_accel_ppp_reloads_what_has_changed(world: World, switch: Switch, accel: Accel) -> None:
    daemon, rendered = switch.daemon(), render(world.configuration)
    assert daemon.preview_action(rendered, world.configuration) == "reload"
    switch.apply(daemon, world.configuration, world.configuration)
    assert accel.commands().count("reload") == 1
    assert world.files()["accel-ppp.conf"] == rendered["accel-ppp.conf"]
    assert daemon.preview_action(rendered, world.configuration) is None
    # As the core does not know what it runs by, after a start.
    switch.apply(switch.daemon(), world.configuration)
    assert accel.commands().count("reload") == 2


def test_accel_ppp_restarts_for_radius_once_the_commit_counts(switch: Switch) -> None:
    daemon = switch.daemon()
    switch.apply(daemon, switch.local)
    assert not daemon.is_unfinished()
    assert daemon.preview_action(render(switch.radius), switch.radius) == "restart"
    switch.apply(daemon, switch.radius)
    assert (daemon.is_unfinished(), switch.restarts()) == (True, 0)
    # Another life of the core does it, too.
    for _ in range(2):
        switch.daemon().finish(switch.radius)
    assert (daemon.is_unfinished(), switch.restarts()) == (False, 1)


def test_accel_ppp_that_runs_as_a_unit_is_restarted_by_systemd(world: World, switch: Switch) -> None:
    daemon = switch.daemon(world.systemd)
    switch.apply(daemon, switch.local, switch.radius)
    world.refuse("^restart")
    with pytest.raises(StepFailed, match=r"cannot restart accel-ppp\.service: Job for it failed"):
        daemon.finish(switch.radius)
    assert daemon.is_unfinished()
    world.refuse(None)
    daemon.finish(switch.radius)
    assert not daemon.is_unfinished()
    assert world.asked() == 2 * ["is-active accel-ppp.service", "restart accel-ppp.service"]
    assert switch.restarts() == 0


@pytest.mark.parametrize("by", ["another commit", "a failed commit", "a restart of the core"])
def test_accel_ppp_that_has_its_modules_again_needs_no_restart(switch: Switch, by: str) -> None:
    daemon = switch.daemon()
    rollback = switch.apply(daemon, switch.local, switch.radius)
    if by == "a failed commit":
        rollback.close()
    else:
        if by == "a restart of the core":
            # It was killed before the commit counts. The next one may finish before it has resumed.
            daemon = switch.daemon()
            daemon.finish(switch.local)
        switch.apply(daemon, switch.local)
    daemon.finish(switch.local)
    assert (daemon.is_unfinished(), switch.restarts()) == (False, 0)


def test_accel_ppp_that_has_started_by_a_commit_that_does_not_count_restarts(switch: Switch) -> None:
    switch.apply(switch.daemon(wall=lambda: time.time() - 100), switch.local, switch.radius)
    # The machine has lost its power: accel-ppp has loaded its modules by the file, and runs for some seconds.
    daemon = switch.daemon()
    switch.apply(daemon, switch.local)
    daemon.finish(switch.local)
    assert (daemon.is_unfinished(), switch.restarts()) == (False, 1)


def test_a_restart_that_accel_ppp_refuses_or_does_not_do_is_owed_until_somebody_does_it(
    switch: Switch, accel: Accel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accel_ppp, "_RESTART_SECONDS", 1.0)
    daemon = switch.daemon()
    switch.apply(daemon, switch.local, switch.radius)
    accel.faults(restart="not now\r\n")
    with pytest.raises(StepFailed, match="cannot restart accel-ppp: 'not now'"):
        daemon.finish(switch.radius)
    accel.faults(restart="", lasting=True)
    with pytest.raises(StepFailed, match=r"it has not restarted, and is not accel-ppp\.service: restart it"):
        daemon.finish(switch.radius)
    assert daemon.is_unfinished()
    accel.restart()
    daemon.finish(switch.radius)
    assert (daemon.is_unfinished(), switch.restarts()) == (False, 2)


def test_accel_ppp_that_refuses_its_file_or_hangs_gets_the_former_one_and_reloads_later(
    world: World, document: dict[str, Any], switch: Switch, accel: Accel
) -> None:
    daemon = AccelPppDaemon(world.placed(), accel.command_line(timeout=60), NO_SYSTEMD)
    switch.apply(daemon, world.configuration)
    before, after = world.files(), of(document, system__hostname="bng9")
    accel.faults(reload="failed\r\n")
    with pytest.raises(StepFailed) as failed:
        run_by(daemon, after)
    assert (failed.value.step, failed.value.reason) == ("reload accel-ppp", "'failed'")
    assert world.files() == before
    accel.faults(reload="", cli="hang")
    with pytest.raises(StepFailed, match=r"^cannot reload accel-ppp: .*no reply within (1|0\.[0-9]+) s$"):
        run_by(daemon, after, limits(1, 1))
    assert world.files() == before
    accel.reset()
    # It may have read the other file.
    switch.apply(daemon, world.configuration)
    assert accel.commands().count("reload") == 1


def test_accel_ppp_that_does_not_run_reads_its_file_at_its_next_start(world: World) -> None:
    absent, rendered = CommandLine(Endpoint(LOCALHOST, free_port()), timeout=5), render(world.configuration)
    run_by(AccelPppDaemon(world.placed(), absent, NO_SYSTEMD), world.configuration)
    assert world.files()["accel-ppp.conf"] == rendered["accel-ppp.conf"]


# FRR


def test_only_a_gateway_with_bgp_requires_frr(world: World, document: dict[str, Any]) -> None:
    absent = FrrFolders(world.folder, world.folder, world.folder, world.folder)
    daemon = FrrDaemon(world.placed(), absent)
    # A full disk is found before FRR changes.
    with no_file_longer_than(0), pytest.raises(StepFailed) as failed:
        run_by(daemon, world.configuration)
    assert failed.value.step == "write frr.conf"
    with pytest.raises(StepFailed, match="cannot run vtysh") as failed:
        run_by(daemon, world.configuration)
    assert failed.value.step == "read the running configuration of FRR"
    without = of({**document, "bgp": None})
    run_by(daemon, without)
    # Nothing would happen to it at the next commit.
    assert daemon.preview_action(render(without), without) is None


def frr_stand_in(folder: Path, script: str) -> FrrFolders:
    for name, text in (("vtysh", "echo old"), ("frr-reload.py", script)):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    (folder / "vtysh.conf").touch()
    return FrrFolders(folder, folder, folder, folder)


def test_an_frr_that_refuses_its_file_is_found_before_any_service_changes(world: World) -> None:
    frr = FrrDaemon(world.placed(), frr_stand_in(world.folder, "exit"))
    (world.folder / "vtysh").write_text("#!/bin/sh\necho 'line 2: % Unknown command'\n")
    services = LinuxServices([world.dhcp(is_source=True), frr], 30, 30)
    with pytest.raises(StepFailed, match=r"FRR refuses frr\.conf: line 2: % Unknown command"):
        apply(services, world.configuration)
    assert (world.asked(), world.files()) == ([], {})


# DHCP, and the whole


def test_dnsmasq_runs_from_the_first_trunk_on(world: World, document: dict[str, Any]) -> None:
    services = world.services()
    without = {**document, "demux": {**document["demux"], "trunks": []}}
    apply(services, of(without))
    assert (world.asked(), "dnsmasq.conf" in world.files()) == ([], False)
    assert services.plan(world.configuration) == (ServiceImpact("dnsmasq", ServiceAction.RESTART),)
    apply(services, world.configuration)
    assert world.asked() == ["restart gateway-dnsmasq.service"]
    assert "interface=trunk0.*\ninterface=trunk1.*\n" in world.files()["dnsmasq.conf"]
    # Where nothing changed, it is started and not restarted.
    services = world.services()
    assert services.plan(world.configuration) == ()
    apply(services, world.configuration)
    assert world.asked() == ["start gateway-dnsmasq.service"]


def test_dnsmasq_can_end_the_leases_of_former_networks_and_trunks(
    world: World, document: dict[str, Any]
) -> None:
    services = world.services()

    def former(trunks: list[str], source_range: str) -> list[str]:
        document["demux"]["trunks"] = trunks
        document["cgnat"]["source_range"] = source_range
        apply(services, of(document))
        assert services.plan(of(document)) == ()
        lines = world.files()["dnsmasq.conf"].partition("dhcp-authoritative")[2].splitlines()
        return [line for line in lines if line.startswith("interface=") or "former" in line]

    assert former(["trunk0", "trunk1"], "100.64.0.0/16") == []
    moved = "dhcp-range=set:former,100.64.0.0,static,255.255.0.0"
    assert former(["trunk1"], "100.65.0.0/16") == [moved, "interface=trunk0.*"]
    assert former([], "100.65.0.0/16") == [moved, "interface=trunk1.*", "interface=trunk0.*"]
    again = "dhcp-range=set:former,100.65.0.0,static,255.255.0.0"
    assert former(["trunk0", "trunk1"], "100.64.0.0/16") == [again]


def test_dhcp_starts_after_the_vlans_of_its_leases_whatever_another_daemon_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = FrrFolders(world.folder, world.folder, world.folder, world.folder)
    units = world.units()
    daemons = [world.dhcp(is_source=True), units, FrrDaemon(world.placed(), absent)]
    services = LinuxServices(daemons, 30, 30)
    # Nothing was started before.
    waits: list[tuple[float, list[str]]] = []
    services.await_vlans = lambda seconds: waits.append((seconds, world.asked()))
    started = threading.Event()
    services.on_dhcp_started = started.set

    def hang(*_: Any) -> Any:
        assert started.wait(PATIENCE)
        return lambda: None

    monkeypatch.setattr(units, "apply", hang)
    with pytest.raises(StepFailed, match="cannot read the running configuration of FRR"):
        services.resume(world.configuration)
    assert waits == [(30.0, [])]
    assert world.asked() == ["restart gateway-dnsmasq.service"]


def test_daemons_that_are_sources_no_longer_are_stopped_once(world: World) -> None:
    world.units("trunk0.300")
    apply(world.services(), world.configuration)
    world.refuse("^stop gateway-dnsmasq")
    for _ in range(2):
        with pytest.raises(StepFailed, match="Job for it failed"):
            world.without_sources().resume(world.configuration)
    assert "dnsmasq.conf" in world.files()
    world.refuse(None)
    # DHCP beside the others.
    assert {*world.asked()} >= {"stop gateway-pppoe@trunk0.300.service"}
    for _ in range(2):
        world.without_sources().resume(world.configuration)
    assert world.asked() == ["stop gateway-dnsmasq.service"]
    assert (world.settings(), "dnsmasq.conf" in world.files()) == ({}, False)
    assert world.without_sources().plan(world.configuration) == ()


def test_a_service_that_refuses_or_hangs_leaves_all_as_before(world: World, document: dict[str, Any]) -> None:
    world.systemd = Systemd([str(world.folder / "systemctl")], seconds=60)
    services = world.services(apply=3, put_back=2)
    apply(services, world.configuration)
    before = world.files()
    # The secrets of subscribers are for root and the core.
    assert (world.folder / "services" / "chap-secrets").stat().st_mode & 0o777 == 0o600
    document["radius"] = RADIUS
    after = of(document, cgnat__source_range="10.8.0.0/16")
    world.asked()
    world.refuse("^restart gateway-dnsmasq")
    with pytest.raises(StepFailed) as failed:
        apply(services, after)
    assert (failed.value.step, failed.value.reason) == (
        "restart gateway-dnsmasq.service",
        "Job for it failed.",
    )
    # The second time with the former file.
    assert world.asked() == ["restart gateway-dnsmasq.service"] * 2
    world.refuse(None)
    world.hang("^restart gateway-dnsmasq")
    with pytest.raises(StepFailed) as failed:
        apply(services, after)
    assert failed.value.step == "restart gateway-dnsmasq.service"
    assert re.fullmatch(r"systemctl did not end within [0-3](\.[0-9]+)? s", failed.value.reason)
    assert world.files() == before


#: Says that there is a difference, always, and hangs while it applies it.
_NEVER_ENDS = """
case $1 in
    --test) printf '\\nLines To Add\\n============\\nrouter bgp 7\\n' ;;
    --reload) exec sleep 60 ;;
esac
"""


def test_an_frr_that_hangs_leaves_the_others_time_to_be_put_back(
    world: World, document: dict[str, Any]
) -> None:
    placed = world.placed()
    apply(world.services(), world.configuration)
    before = world.files()
    world.asked()
    frr = FrrDaemon(placed, frr_stand_in(world.folder, _NEVER_ENDS))
    services = LinuxServices([world.dhcp(is_source=True), frr], 4, 8)
    after = of(document, cgnat__source_range="10.8.0.0/16")
    with pytest.raises(StepFailed, match=r"cannot apply frr\.conf to FRR: .*did not end within"):
        apply(services, after)
    assert world.asked() == ["restart gateway-dnsmasq.service"] * 2
    assert world.files() == before
