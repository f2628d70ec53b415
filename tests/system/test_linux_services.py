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

from gateway_api.base.errors import StepFailed
from gateway_api.core.configuration.running import RunningConfiguration
from gateway_api.core.gateways.linux.daemons import accel_ppp
from gateway_api.core.gateways.linux.daemons.accel_ppp import AccelPppReload
from gateway_api.core.gateways.linux.daemons.daemon import PlacedFiles
from gateway_api.core.gateways.linux.daemons.dnsmasq import DhcpServer
from gateway_api.core.gateways.linux.daemons.frr import FrrByDifference, FrrFolders
from gateway_api.core.gateways.linux.daemons.linux_services import LinuxServices
from gateway_api.core.gateways.linux.daemons.pppd import SignOnFiles
from gateway_api.core.gateways.linux.daemons.pppoe_server import PppoeUnits
from gateway_api.core.gateways.linux.daemons.systemd import Systemd
from gateway_api.core.gateways.linux.program import CommitLimits
from gateway_api.core.gateways.linux.sources.accel_cli import CommandLine, Endpoint
from gateway_api.core.gateways.linux.sources.source import SourceRefused, SourceUnavailable
from gateway_api.wire.configuration import Configuration
from gateway_api.wire.core.impact import ServiceAction, ServiceImpact
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

    def refuse(self, pattern: str | None) -> None:
        (self.folder / "refused").unlink(missing_ok=True)
        if pattern is not None:
            (self.folder / "refused").write_text(f"{pattern}\n")

    def hang(self, pattern: str | None) -> None:
        """Until the next call."""
        (self.folder / "hangs").unlink(missing_ok=True)
        if pattern is not None:
            (self.folder / "hangs").write_text(f"{pattern}\n")

    def units(self) -> PppoeUnits:
        """As after a start of the core."""
        units = PppoeUnits(self.systemd, self.folder / "pppoe", is_source=True)
        units.begin(self.configuration)
        return units

    def settings(self) -> dict[str, str]:
        files = (self.folder / "pppoe").iterdir()
        return {path.name: path.read_text() for path in files if path.name != "to-reload"}

    def files(self) -> dict[str, str]:
        folder = self.folder / "services"
        return {path.name: path.read_text() for path in folder.iterdir()} if folder.exists() else {}

    def services(self, apply: float = 30, put_back: float = 30) -> LinuxServices:
        secrets = SignOnFiles(PlacedFiles(self.folder / "services"))
        return LinuxServices([secrets, self.units(), self.dhcp(is_source=True)], apply, put_back)

    def dhcp(self, *, is_source: bool) -> DhcpServer:
        return DhcpServer(self.systemd, PlacedFiles(self.folder / "services"), is_source=is_source)

    def without_sources(self) -> LinuxServices:
        """After a change to accel-ppp."""
        units = PppoeUnits(self.systemd, self.folder / "pppoe", is_source=False)
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
    units.start(["trunk0.300", "trunk0.301"])
    assert world.settings() == {
        "trunk0.300": "100.64.0.1 100.64.0.16 secrets bng1\n",
        "trunk0.301": "100.64.0.1 100.64.0.32 secrets bng1\n",
    }
    assert world.asked() == ["start gateway-pppoe@trunk0.300.service gateway-pppoe@trunk0.301.service"]


def test_a_vlan_keeps_its_block_over_a_restart_of_the_core(world: World) -> None:
    first = world.units()
    first.start(["trunk0.300"])
    first.start(["trunk0.301"])
    first.stop("trunk0.300")
    before = world.settings()
    second = world.units()
    second.start(["trunk0.301"])
    assert world.settings() == before
    second.start(["trunk0.300"])
    assert world.settings()["trunk0.300"].split()[1] == "100.64.0.16"


def test_the_block_of_a_server_that_did_not_stop_stays_taken(world: World) -> None:
    units = world.units()
    units.start(["trunk0.300"])
    world.refuse("^stop")
    with pytest.raises(SourceRefused, match="Job for it failed"):
        units.stop("trunk0.300")
    units.start(["trunk0.301"])
    assert world.settings()["trunk0.301"].split()[1] == "100.64.0.32"


def test_a_server_that_is_asked_for_again_is_no_error(world: World) -> None:
    units = world.units()
    for _ in range(2):
        units.start(["trunk0.300"])
    units.stop("trunk0.300")
    units.stop("trunk0.300")
    assert world.settings() == {}


def test_a_server_that_systemd_refuses_to_start_is_refused(world: World) -> None:
    world.refuse("^start")
    with pytest.raises(SourceRefused, match="Job for it failed"):
        world.units().start(["trunk0.300"])


def test_without_an_answer_of_systemd_the_source_is_unavailable(world: World) -> None:
    world.hang("^start")
    systemd = Systemd([str(world.folder / "systemctl")], seconds=0.5)
    units = PppoeUnits(systemd, world.folder, is_source=True)
    units.begin(world.configuration)
    with pytest.raises(SourceUnavailable, match="did not end within"):
        units.start(["trunk0.300"])


def test_without_a_free_block_a_vlan_is_refused(world: World, document: dict[str, Any]) -> None:
    world.configuration = of(document, cgnat__source_range="10.0.0.0/27")
    with pytest.raises(SourceRefused, match="no free block"):
        world.units().start(["trunk0.300"])


def test_vlans_share_a_small_range_in_smaller_blocks(world: World, document: dict[str, Any]) -> None:
    world.configuration = of(document, cgnat__source_range="10.0.0.0/26")
    units = world.units()
    units.start(["trunk0.300"])
    world.asked()
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


def test_a_commit_gives_vlans_larger_blocks_where_there_is_room(
    world: World, document: dict[str, Any]
) -> None:
    world.configuration = of(document, cgnat__source_range="10.0.0.0/26")
    units = world.units()
    units.start(["trunk0.300"])
    with pytest.raises(SourceRefused):
        units.start(["trunk0.301"])
    units.start(["trunk0.301"])
    units.apply({}, of(document, cgnat__source_range="10.0.0.0/16"), limits())
    blocks = {interface: settings.split()[1] for interface, settings in world.settings().items()}
    assert blocks == {"trunk0.300": "10.0.0.16", "trunk0.301": "10.0.0.32"}


def test_other_settings_reload_the_servers_and_keep_their_blocks(
    world: World, document: dict[str, Any]
) -> None:
    units = world.units()
    units.start(["trunk0.300"])
    units.start(["trunk0.301"])
    world.asked()
    document["radius"] = RADIUS
    after = of(document, system__hostname="bng9")
    assert units.action({}, after) == "reload"
    units.apply({}, after, limits())
    assert world.settings() == {
        "trunk0.300": "100.64.0.1 100.64.0.16 radius bng9\n",
        "trunk0.301": "100.64.0.1 100.64.0.32 radius bng9\n",
    }
    units_asked = "gateway-pppoe@trunk0.300.service gateway-pppoe@trunk0.301.service"
    assert world.asked() == [f"try-reload-or-restart {units_asked}"]
    assert units.action({}, after) is None


def test_other_dns_servers_reload_the_servers(world: World, document: dict[str, Any]) -> None:
    units = world.units()
    units.start(["trunk0.300"])
    world.asked()
    document["subscribers"] = {"dns_servers": ["192.0.2.53", "192.0.2.54"]}
    assert units.action({}, of(document)) == "reload"
    units.apply({}, of(document), limits())
    assert world.settings()["trunk0.300"] == "100.64.0.1 100.64.0.16 secrets bng1\n192.0.2.53 192.0.2.54\n"
    assert world.asked() == ["try-reload-or-restart gateway-pppoe@trunk0.300.service"]


def test_another_range_gives_the_vlans_other_blocks(world: World, document: dict[str, Any]) -> None:
    units = world.units()
    units.start(["trunk0.300"])
    units.apply({}, of(document, cgnat__source_range="10.8.0.0/16"), limits())
    assert world.settings()["trunk0.300"] == "10.8.0.1 10.8.0.16 secrets bng1\n"


def test_what_is_of_no_concern_to_pppoe_leaves_the_servers_alone(
    world: World, document: dict[str, Any]
) -> None:
    units = world.units()
    units.start(["trunk0.300"])
    world.asked()
    after = of(document, qos__default_down="1gbit")
    assert units.action({}, after) is None
    units.apply({}, after, limits())
    assert world.asked() == []


def test_servers_that_do_not_reload_have_their_settings_as_before(
    world: World, document: dict[str, Any]
) -> None:
    units = world.units()
    units.start(["trunk0.300"])
    before = world.settings()
    world.refuse("^try-reload")
    with pytest.raises(StepFailed) as failed:
        units.apply({}, of(document, system__hostname="bng9"), limits())
    assert (failed.value.step, failed.value.reason) == ("configure pppoe-server", "Job for it failed.")
    assert world.settings() == before


@pytest.mark.parametrize("is_restarted", [False, True])
def test_servers_that_may_run_by_a_failed_commit_reload_later(
    world: World, document: dict[str, Any], is_restarted: bool
) -> None:
    units = world.units()
    units.start(["trunk0.300"])
    world.refuse("^try-reload")
    with pytest.raises(StepFailed, match="Job for it failed"):
        units.apply({}, of(document, system__hostname="bng9"), limits())
    world.refuse(None)
    world.asked()
    if is_restarted:
        units = world.units()
    assert units.action({}, world.configuration) == "reload"
    units.apply({}, world.configuration, limits())
    assert world.asked() == ["try-reload-or-restart gateway-pppoe@trunk0.300.service"]
    assert world.units().action({}, world.configuration) is None


def test_no_vlan_gets_addresses_that_a_server_with_a_larger_block_may_give_away(
    world: World, document: dict[str, Any]
) -> None:
    world.configuration = of(document, cgnat__source_range="10.8.0.0/26")
    units = world.units()
    units.start(["trunk0.300"])
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


def test_a_vlan_that_is_gone_gives_its_block_back_at_the_start_of_the_core(world: World) -> None:
    world.units().start(["trunk0.300"])
    ip("link del trunk0.300")
    units = world.units()
    units.apply({}, world.configuration, limits())
    assert world.asked()[-1] == "stop gateway-pppoe@trunk0.300.service"
    assert world.settings() == {}


def test_several_vlans_that_are_gone_are_stopped_at_once(world: World) -> None:
    world.units().start(["trunk0.300", "trunk0.301"])
    ip("link del trunk0.300", "link del trunk0.301")
    world.asked()
    world.units().apply({}, world.configuration, limits())
    (stop,) = world.asked()
    assert sorted(stop.split()[1:]) == [
        "gateway-pppoe@trunk0.300.service",
        "gateway-pppoe@trunk0.301.service",
    ]


def test_a_commit_does_not_wait_for_a_start_that_hangs(world: World, document: dict[str, Any]) -> None:
    world.systemd = Systemd([str(world.folder / "systemctl")], seconds=60)
    units = world.units()
    world.hang("^start")
    with ThreadPoolExecutor() as pool:
        start = pool.submit(units.start, ["trunk0.300"])
        wait_for("the start", world.asked)
        try:
            after = of(document, system__hostname="bng9")
            with pytest.raises(StepFailed, match="another change to it did not end within"):
                units.apply({}, after, limits(0.5, 1))
        finally:
            world.hang(None)
        start.result()
    assert world.settings() == {"trunk0.300": "100.64.0.1 100.64.0.16 secrets bng1\n"}


# accel-ppp


@pytest.fixture
def accel(world: World) -> Iterator[Accel]:
    """In the network of the world."""
    with running_accel() as running:
        yield running


def test_accel_ppp_reloads_what_has_changed(world: World, document: dict[str, Any], accel: Accel) -> None:
    placed = PlacedFiles(world.folder / "services")
    daemon = AccelPppReload(placed, accel.command_line())
    rendered = render(world.configuration)
    assert daemon.action(rendered, world.configuration) == "reload"
    for _ in range(2):
        daemon.apply(rendered, world.configuration, limits())
    assert accel.commands().count("reload") == 1
    assert world.files()["accel-ppp.conf"] == rendered["accel-ppp.conf"]
    assert daemon.action(rendered, world.configuration) is None
    # As the core does not know what it runs by, after a start.
    AccelPppReload(placed, accel.command_line()).apply(rendered, world.configuration, limits())
    assert accel.commands().count("reload") == 2


def test_accel_ppp_restarts_for_radius_once_the_commit_counts(
    world: World, document: dict[str, Any], accel: Accel
) -> None:
    placed = PlacedFiles(world.folder / "services")
    daemon = AccelPppReload(placed, accel.command_line())
    local, radius = world.configuration, of({**document, "radius": RADIUS})
    daemon.apply(render(local), local, limits())
    assert not daemon.is_unfinished()
    assert daemon.action(render(radius), radius) == "restart"
    daemon.apply(render(radius), radius, limits())
    assert (daemon.is_unfinished(), "restart hard" in accel.commands()) == (True, False)
    # Another life of the core does it, too.
    for _ in range(2):
        AccelPppReload(placed, accel.command_line()).finish(radius)
    assert (daemon.is_unfinished(), accel.commands().count("restart hard")) == (False, 1)


def test_accel_ppp_that_runs_as_a_unit_is_restarted_by_systemd(
    world: World, document: dict[str, Any], accel: Accel
) -> None:
    daemon = AccelPppReload(PlacedFiles(world.folder / "services"), accel.command_line(), world.systemd)
    for configuration in (world.configuration, of({**document, "radius": RADIUS})):
        daemon.apply(render(configuration), configuration, limits())
    world.refuse("^restart")
    with pytest.raises(StepFailed, match=r"cannot restart accel-ppp\.service: Job for it failed"):
        daemon.finish(configuration)
    assert daemon.is_unfinished()
    world.refuse(None)
    daemon.finish(configuration)
    assert not daemon.is_unfinished()
    assert world.asked() == 2 * ["is-active accel-ppp.service", "restart accel-ppp.service"]
    assert "restart hard" not in accel.commands()


@pytest.mark.parametrize("by_a_commit", [True, False])
def test_accel_ppp_that_has_its_modules_again_needs_no_restart(
    world: World, document: dict[str, Any], accel: Accel, by_a_commit: bool
) -> None:
    daemon = AccelPppReload(PlacedFiles(world.folder / "services"), accel.command_line())
    local, radius = world.configuration, of({**document, "radius": RADIUS})
    daemon.apply(render(local), local, limits())
    put_back = daemon.apply(render(radius), radius, limits())
    if by_a_commit:
        daemon.apply(render(local), local, limits())
    else:
        put_back()
    daemon.finish(local)
    assert (daemon.is_unfinished(), "restart hard" in accel.commands()) == (False, False)


def test_accel_ppp_does_not_restart_for_a_commit_that_does_not_count(
    world: World, document: dict[str, Any], accel: Accel
) -> None:
    placed = PlacedFiles(world.folder / "services")
    daemon = AccelPppReload(placed, accel.command_line())
    local, radius = world.configuration, of({**document, "radius": RADIUS})
    daemon.apply(render(local), local, limits())
    # The core is killed before the commit counts. The next one may finish before it has resumed.
    daemon.apply(render(radius), radius, limits())
    daemon = AccelPppReload(placed, accel.command_line())
    daemon.finish(local)
    daemon.apply(render(local), local, limits())
    daemon.finish(local)
    assert (daemon.is_unfinished(), "restart hard" in accel.commands()) == (False, False)


def test_accel_ppp_that_has_started_by_a_commit_that_does_not_count_restarts(
    world: World, document: dict[str, Any], accel: Accel
) -> None:
    placed = PlacedFiles(world.folder / "services")
    daemon = AccelPppReload(placed, accel.command_line(), wall=lambda: time.time() - 100)
    local, radius = world.configuration, of({**document, "radius": RADIUS})
    for configuration in (local, radius):
        daemon.apply(render(configuration), configuration, limits())
    # The machine has lost its power: accel-ppp has loaded its modules by the file, and runs for some seconds.
    daemon = AccelPppReload(placed, accel.command_line())
    daemon.apply(render(local), local, limits())
    daemon.finish(local)
    assert (daemon.is_unfinished(), accel.commands().count("restart hard")) == (False, 1)


def test_a_restart_that_accel_ppp_refuses_is_owed(
    world: World, document: dict[str, Any], accel: Accel
) -> None:
    daemon = AccelPppReload(PlacedFiles(world.folder / "services"), accel.command_line())
    radius = of({**document, "radius": RADIUS})
    for configuration in (world.configuration, radius):
        daemon.apply(render(configuration), configuration, limits())
    accel.faults(restart="not now\r\n")
    with pytest.raises(StepFailed, match="cannot restart accel-ppp: 'not now'"):
        daemon.finish(radius)
    assert daemon.is_unfinished()


def test_a_restart_that_accel_ppp_does_not_do_is_owed_until_somebody_does_it(
    world: World, document: dict[str, Any], accel: Accel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accel_ppp, "_RESTARTS", 1.0)
    daemon = AccelPppReload(PlacedFiles(world.folder / "services"), accel.command_line())
    for configuration in (world.configuration, of({**document, "radius": RADIUS})):
        daemon.apply(render(configuration), configuration, limits())
    accel.faults(lasting=True)
    with pytest.raises(StepFailed, match=r"it has not restarted, and is not accel-ppp\.service: restart it"):
        daemon.finish(configuration)
    assert daemon.is_unfinished()
    accel.restart()
    daemon.finish(configuration)
    assert (daemon.is_unfinished(), accel.commands().count("restart hard")) == (False, 1)


def test_accel_ppp_that_refuses_its_file_gets_the_former_one(
    world: World, document: dict[str, Any], accel: Accel
) -> None:
    daemon = AccelPppReload(PlacedFiles(world.folder / "services"), accel.command_line())
    daemon.apply(render(world.configuration), world.configuration, limits())
    before = world.files()
    after = of(document, system__hostname="bng9")
    accel.faults(reload="failed\r\n")
    try:
        with pytest.raises(StepFailed) as failed:
            daemon.apply(render(after), after, limits())
    finally:
        accel.reset()
    assert (failed.value.step, failed.value.reason) == ("reload accel-ppp", "'failed'")
    assert world.files() == before


def test_accel_ppp_that_hangs_gets_the_former_file_and_reloads_later(
    world: World, document: dict[str, Any], accel: Accel
) -> None:
    daemon = AccelPppReload(PlacedFiles(world.folder / "services"), accel.command_line(timeout=60))
    daemon.apply(render(world.configuration), world.configuration, limits())
    before = world.files()
    after = of(document, system__hostname="bng9")
    accel.faults(cli="hang")
    try:
        with pytest.raises(StepFailed, match=r"^cannot reload accel-ppp: .*no reply within (1|0\.[0-9]+) s$"):
            daemon.apply(render(after), after, limits(1, 1))
    finally:
        accel.reset()
    assert world.files() == before
    # It may have read the other file.
    daemon.apply(render(world.configuration), world.configuration, limits())
    assert accel.commands().count("reload") == 1


def test_accel_ppp_that_does_not_run_reads_its_file_at_its_next_start(world: World) -> None:
    absent = CommandLine(Endpoint(LOCALHOST, free_port()), timeout=5)
    daemon = AccelPppReload(PlacedFiles(world.folder / "services"), absent)
    daemon.apply(render(world.configuration), world.configuration, limits())
    assert world.files()["accel-ppp.conf"] == render(world.configuration)["accel-ppp.conf"]


# FRR


@pytest.mark.parametrize("bgp", [True, False])
def test_only_a_gateway_with_bgp_requires_frr(world: World, document: dict[str, Any], bgp: bool) -> None:
    absent = FrrFolders(world.folder, world.folder, world.folder, world.folder)
    daemon = FrrByDifference(PlacedFiles(world.folder / "services"), absent)
    if not bgp:
        document["bgp"] = None
        daemon.apply(render(of(document)), of(document), limits())
        # Nothing would happen to it at the next commit.
        assert daemon.action(render(of(document)), of(document)) is None
        return
    with pytest.raises(StepFailed) as failed:
        daemon.apply(render(of(document)), of(document), limits())
    assert failed.value.step == "apply frr.conf to FRR"
    assert "cannot run vtysh" in failed.value.reason


def frr_stand_in(folder: Path, script: str) -> FrrFolders:
    for name, text in (("vtysh", "echo old"), ("frr-reload.py", script)):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    (folder / "vtysh.conf").touch()
    return FrrFolders(folder, folder, folder, folder)


def test_a_gateway_without_bgp_does_not_do_without_an_frr_that_hangs(
    world: World, document: dict[str, Any]
) -> None:
    hanging = frr_stand_in(world.folder, "exec sleep 60")
    document["bgp"] = None
    daemon = FrrByDifference(PlacedFiles(world.folder / "services"), hanging)
    with pytest.raises(StepFailed, match=r"cannot apply frr\.conf to FRR: frr-reload\.py did not end within"):
        daemon.apply(render(of(document)), of(document), limits(2, 2))
    assert world.files() == {}


def test_a_file_that_frr_refuses_is_found_before_any_service_changes(world: World) -> None:
    folders = frr_stand_in(world.folder, "exit 1")
    (world.folder / "vtysh").write_text("#!/bin/sh\necho 'line 2: % Unknown command'\n")
    placed = PlacedFiles(world.folder / "services")
    services = LinuxServices([world.dhcp(is_source=True), FrrByDifference(placed, folders)], 30, 30)
    with pytest.raises(StepFailed, match=r"FRR refuses frr\.conf: line 2: % Unknown command"):
        apply(services, world.configuration)
    assert (world.asked(), world.files()) == ([], {})


def test_a_full_disk_is_found_before_frr_changes(world: World) -> None:
    absent = FrrFolders(world.folder, world.folder, world.folder, world.folder)
    daemon = FrrByDifference(PlacedFiles(world.folder / "services"), absent)
    with no_file_longer_than(0), pytest.raises(StepFailed) as failed:
        daemon.apply(render(world.configuration), world.configuration, limits())
    assert failed.value.step == "write frr.conf"


# DHCP, and the whole


def test_dnsmasq_runs_from_the_first_trunk_on(world: World, document: dict[str, Any]) -> None:
    services = world.services()
    without = {**document, "demux": {**document["demux"], "trunks": []}}
    apply(services, of(without))
    assert (world.asked(), "dnsmasq.conf" in world.files()) == ([], False)
    assert services.plan(world.configuration) == (ServiceImpact("dnsmasq", ServiceAction.RESTART),)
    apply(services, world.configuration)
    assert world.asked() == ["restart gateway-dnsmasq.service"]
    text = world.files()["dnsmasq.conf"]
    assert "interface=trunk0.*\ninterface=trunk1.*\n" in text
    assert "dhcp-range=set:pool0,100.96.0.0,100.127.255.254,255.192.0.0,600\n" in text
    assert "dhcp-option=tag:pool0,option:router,100.64.0.1\n" in text


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


def test_dhcp_gives_away_no_address_of_a_local_subscriber(world: World, document: dict[str, Any]) -> None:
    addresses = ("100.64.0.20", "100.96.0.20", "192.0.2.20")
    document["subscribers"] = {
        "local": [{"username": address, "password": "secret", "ip_address": address} for address in addresses]
    }
    services = world.services()
    apply(services, of(document))
    lines = world.files()["dnsmasq.conf"].splitlines()
    assert [line for line in lines if "host" in line] == ["dhcp-host=id:reserved,100.96.0.20,ignore"]


def test_dhcp_tells_subscribers_the_dns_servers(world: World, document: dict[str, Any]) -> None:
    document["subscribers"] = {"dns_servers": ["192.0.2.53", "192.0.2.54"]}
    services = world.services()
    apply(services, of(document))
    lines = world.files()["dnsmasq.conf"].splitlines()
    assert "dhcp-option=option:dns-server,192.0.2.53,192.0.2.54" in lines


def test_dnsmasq_is_started_and_not_restarted_where_nothing_changed(world: World) -> None:
    apply(world.services(), world.configuration)
    world.asked()
    services = world.services()
    assert services.plan(world.configuration) == ()
    apply(services, world.configuration)
    assert world.asked() == ["start gateway-dnsmasq.service"]


def test_services_run_by_what_a_new_version_renders_from_its_start_on(world: World, accel: Accel) -> None:
    placed = PlacedFiles(world.folder / "services")
    services = LinuxServices(
        [AccelPppReload(placed, accel.command_line()), world.dhcp(is_source=True)], 30, 30
    )
    new = services.render(world.configuration)
    for name in new:
        placed.place(name, "# Rendered by a former version.\n")
    services.resume(world.configuration)
    assert accel.commands().count("reload") == 1
    assert world.asked() == ["restart gateway-dnsmasq.service"]
    assert world.files() == new


def test_dhcp_starts_after_the_vlans_of_its_leases(world: World) -> None:
    services = LinuxServices([world.dhcp(is_source=True), world.units()], 30, 30)
    # Nothing was started before.
    waits: list[tuple[float, list[str]]] = []
    asked_before: list[list[str]] = []
    services.await_vlans = lambda seconds: waits.append((seconds, world.asked()))
    services.dhcp_started = lambda: asked_before.append(world.asked())
    services.resume(world.configuration)
    assert waits == [(30.0, [])]
    assert asked_before == [["restart gateway-dnsmasq.service"]]


def test_a_daemon_that_hangs_at_a_start_does_not_delay_dhcp(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = world.units()
    services = LinuxServices([units, world.dhcp(is_source=True)], 30, 30)
    started = threading.Event()
    services.dhcp_started = started.set

    def hang(*_: Any) -> Any:
        assert started.wait(PATIENCE)
        return lambda: None

    monkeypatch.setattr(units, "apply", hang)
    services.resume(world.configuration)
    assert world.asked() == ["restart gateway-dnsmasq.service"]


def test_daemons_that_are_sources_no_longer_are_stopped_once(world: World) -> None:
    units = world.units()
    units.start(["trunk0.300"])
    apply(world.services(), world.configuration)
    world.asked()
    for _ in range(2):
        world.without_sources().resume(world.configuration)
    # DHCP beside the others.
    stopped = ["stop gateway-dnsmasq.service", "stop gateway-pppoe@trunk0.300.service"]
    assert sorted(world.asked()) == stopped
    assert (world.settings(), "dnsmasq.conf" in world.files()) == ({}, False)
    assert world.without_sources().plan(world.configuration) == ()


def test_a_daemon_that_did_not_stop_is_stopped_later(world: World) -> None:
    apply(world.services(), world.configuration)
    world.refuse("^stop")
    for _ in range(2):
        with pytest.raises(StepFailed, match="Job for it failed"):
            world.without_sources().resume(world.configuration)
    world.refuse(None)
    world.asked()
    world.without_sources().resume(world.configuration)
    assert world.asked() == ["stop gateway-dnsmasq.service"]


def test_a_service_that_refuses_at_a_start_keeps_no_other_from_running(world: World) -> None:
    placed = PlacedFiles(world.folder / "services")
    absent = FrrFolders(world.folder, world.folder, world.folder, world.folder)
    services = LinuxServices([FrrByDifference(placed, absent), world.dhcp(is_source=True)], 30, 30)
    with pytest.raises(StepFailed, match=r"cannot apply frr\.conf"):
        services.resume(world.configuration)
    assert world.asked() == ["restart gateway-dnsmasq.service"]


def test_the_secrets_of_subscribers_are_for_root_and_the_core(world: World, document: dict[str, Any]) -> None:
    document["subscribers"] = {"local": [{"username": "alice", "password": "pw-alice"}]}
    services = world.services()
    apply(services, of(document))
    secrets = world.folder / "services" / "chap-secrets"
    assert "alice * pw-alice *\n" in secrets.read_text()
    assert oct(secrets.stat().st_mode & 0o777) == "0o600"
    document["radius"] = RADIUS
    apply(services, of(document))
    assert not secrets.exists()
    assert "radius-servers" in world.files()


def test_a_service_that_refuses_leaves_all_as_before(world: World, document: dict[str, Any]) -> None:
    services = world.services()
    apply(services, world.configuration)
    before = world.files()
    document["radius"] = RADIUS
    after = of(document, cgnat__source_range="10.8.0.0/16")
    world.asked()
    world.refuse("^restart gateway-dnsmasq")
    with pytest.raises(StepFailed) as failed:
        apply(services, after)
    assert (failed.value.step, failed.value.reason) == ("restart dnsmasq", "Job for it failed.")
    assert world.files() == before
    # The second time with the former file.
    assert world.asked() == ["restart gateway-dnsmasq.service"] * 2


def test_a_service_that_hangs_leaves_all_as_before(world: World, document: dict[str, Any]) -> None:
    world.systemd = Systemd([str(world.folder / "systemctl")], seconds=60)
    services = world.services(apply=3, put_back=2)
    apply(services, world.configuration)
    before = world.files()
    document["radius"] = RADIUS
    after = of(document, cgnat__source_range="10.8.0.0/16")
    world.hang("^restart gateway-dnsmasq")
    with pytest.raises(StepFailed) as failed:
        apply(services, after)
    assert failed.value.step == "restart dnsmasq"
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
    placed = PlacedFiles(world.folder / "services")
    apply(world.services(), world.configuration)
    before = world.files()
    world.asked()
    frr = FrrByDifference(placed, frr_stand_in(world.folder, _NEVER_ENDS))
    services = LinuxServices([world.dhcp(is_source=True), frr], 4, 8)
    after = of(document, cgnat__source_range="10.8.0.0/16")
    with pytest.raises(StepFailed, match=r"cannot apply frr\.conf to FRR: .*did not end within"):
        apply(services, after)
    assert world.asked() == ["restart gateway-dnsmasq.service"] * 2
    assert world.files() == before
