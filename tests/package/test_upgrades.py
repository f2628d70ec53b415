"""The Debian packages after earlier ones, and when they leave: what stays is the operator's."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway_contract.base.errors import CoreAbsent
from tests.support.machine import Machine, booted
from tests.support.package import NAMES, PROGRAMS, Installed, choose_the_lab, install, repacked, state_of
from tests.support.stack import wait_for

OWN_CORE = "/etc/systemd/system/gateway-core.service"
_EDITED = ("factory.json", "gateway-api.env")


@pytest.fixture(scope="module")
def newer(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same packages as a later version, with changes to files that operators edit and that they don't."""

    def change(tree: Path) -> None:
        control = tree / "DEBIAN" / "control"
        text = re.sub(r"(?m)^Version: .*", "Version: 99", control.read_text())
        control.write_text(re.sub(r"gateway-api \(= .*?\)", "gateway-api (= 99)", text))
        for name, line in (("factory.json", " \n"), ("gateway-api.env", "# of version 99\n")):
            if (tree / "etc" / "gateway-api" / name).exists():
                with (tree / "etc" / "gateway-api" / name).open("a") as file:
                    file.write(line)

    folder = tmp_path_factory.mktemp("newer")
    return [repacked(package, folder / name, change) for name, package in packages.items()]


#: What version 0.1.0 did, apart from its own upgrades.
_SINGLE_POSTINST = """#!/bin/sh
set -e
gateway-api-setup
deb-systemd-helper enable gateway-api.service
systemctl daemon-reload
systemctl try-restart gateway-core-lab.service
deb-systemd-invoke restart gateway-api.service
"""


@pytest.fixture(scope="module")
def single(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All files in one package, as in version 0.1.0."""

    def change(tree: Path) -> None:
        for name in ("gateway-core", "gatewayctl"):
            subprocess.run(["dpkg-deb", "--extract", packages[name], tree], check=True)
        control, conffiles = tree / "DEBIAN" / "control", tree / "DEBIAN" / "conffiles"
        control.write_text(re.sub(r"(?m)^Version: .*", "Version: 0.1.0", control.read_text()))
        conffiles.write_text("".join(f"/etc/gateway-api/{name}\n" for name in _EDITED))
        (tree / "DEBIAN" / "postinst").write_text(_SINGLE_POSTINST)

    return repacked(packages["gateway-api"], tmp_path_factory.mktemp("single") / "gateway-api", change)


def starts(machine: Machine, unit: str) -> int:
    """Return how often systemd has started a unit."""
    log = machine.run("journalctl", f"--unit={unit}", "--output=json", "--output-fields=MESSAGE_ID")
    # SD_MESSAGE_UNIT_STARTED (systemd.journal-fields(7)).
    return log.count("39f53479d3a045ac8e11786248231fbf")


def process_of(machine: Machine, unit: str) -> str:
    """Return the process id of a unit, in the machine."""
    return machine.run("systemctl", "show", "--property=MainPID", "--value", unit).strip()


def test_an_upgrade_from_the_single_package_restarts_core_and_api_once_and_keeps_what_is_there(
    single: Path, packages: dict[str, Path], tmp_path: Path
) -> None:
    with booted(tmp_path / "root") as machine, machine.network():
        here = Installed(machine, install(machine, [single]))
        choose_the_lab(machine)
        etc = machine.root / "etc" / "gateway-api"
        for name in _EDITED:
            with (etc / name).open("a") as file:
                file.write("\n")
        before = {name: (etc / name).read_bytes() for name in _EDITED}
        # It waits for its settings, with the folder of the hooks mounted as its /etc/ppp.
        server = "gateway-pppoe@lo"
        machine.run("systemctl", "start", server)
        units = ("gateway-core-lab", "gateway-api")
        started, process = [starts(machine, unit) for unit in units], process_of(machine, server)
        # Without a terminal, a question of dpkg would be an error.
        said = install(machine, packages.values())
        assert "WARNING" not in said
        assert [starts(machine, unit) for unit in units] == [number + 1 for number in started]
        assert here.serves()
        assert process_of(machine, server) == process
        hook = f"/proc/{process}/root/etc/ppp/ip-up"
        assert len(set(machine.run("stat", "--format=%i", hook, f"{PROGRAMS}/ppp/ip-up").split())) == 1
        assert {name: (etc / name).read_bytes() for name in _EDITED} == before
        assert {path.name for path in etc.glob("*.*")} == {*_EDITED, "first-users.json", "gateway-relay.env"}


def test_an_upgrade_of_the_api_alone_leaves_the_running_core_and_names_the_packages_that_are_missing(
    single: Path, packages: dict[str, Path], tmp_path: Path
) -> None:
    with booted(tmp_path / "root") as machine, machine.network():
        here = Installed(machine, install(machine, [single]))
        choose_the_lab(machine)
        core = machine.processes("gateway_core")
        said = install(machine, [packages["gateway-api"]])
        assert re.search(r"WARNING: .* Install gateway-core 1\.", said)
        assert "gatewayctl 1." in said
        assert machine.processes("gateway_core") == core
        assert here.serves()
        install(machine, [packages["gateway-core"], packages["gatewayctl"]])
        assert set(machine.processes("gateway_core")).isdisjoint(core)
        assert here.serves()


@dataclass
class Moment:
    """What a machine holds of the packages at a moment. `files` are those of operators and of the core."""

    files: dict[str, bytes]
    processes: list[int]
    programs: bool
    units: str
    users: set[str]

    @classmethod
    def of(cls, machine: Machine) -> "Moment":
        folders = [machine.root / name for name in ("etc/gateway-api", "var/lib/gateway-core")]
        files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
        return cls(
            files={str(path.relative_to(machine.root)): path.read_bytes() for path in files},
            processes=machine.processes(PROGRAMS),
            programs=(machine.root / PROGRAMS.lstrip("/")).exists(),
            units=machine.attempt("systemctl", "list-unit-files", "--no-legend", "gateway-*").stdout,
            users=set(re.findall(r"(?m)^gateway-\w+", (machine.root / "etc" / "passwd").read_text())),
        )


def test_an_upgrade_restarts_the_services_a_removal_keeps_what_is_the_operator_s_and_a_purge_nothing(
    packages: dict[str, Path], newer: list[Path], tmp_path: Path
) -> None:
    with booted(tmp_path / "root") as machine, machine.network():
        here = Installed(machine, install(machine, packages.values()))
        choose_the_lab(machine)
        api = here.api()
        change = {"path": "system.hostname", "value": "bng7"}
        assert api.send("POST", "/system/config/set", json=change).ok
        assert api.send("POST", "/system/config/commit").ok
        with (machine.root / "etc" / "gateway-api" / "factory.json").open("a") as file:
            file.write("\n")
        installed, token = Moment.of(machine), api.token("admin")
        install(machine, newer, "--force-confold")
        assert here.api().get("/system/config", role=None, token=token)["system"]["hostname"] == "bng7"
        upgraded = Moment.of(machine)
        assert len(upgraded.processes) == len(installed.processes)
        assert set(upgraded.processes).isdisjoint(installed.processes)
        # A file that nobody has edited is the new one.
        assert upgraded.files["etc/gateway-api/gateway-api.env"].endswith(b"# of version 99\n")
        # The core writes its database of jobs at each start, and forgets the last change at its end.
        rewritten = ("/jobs/jobs.sqlite", "/configuration/state.json", "gateway-api.env")
        kept = {
            name: held
            for name, held in installed.files.items()
            if not any(word in name for word in rewritten)
        }
        assert any(name.startswith("var/lib/gateway-core/configuration/") for name in kept)
        assert {name: upgraded.files.get(name) for name in kept} == kept
        machine.run("dpkg", "--remove", *NAMES)
        removed = Moment.of(machine)
        assert (removed.processes, removed.programs) == ([], False)
        # What stays is the name of the core that the operator has chosen.
        assert re.sub("(?m)^gateway-core.service .*\n", "", removed.units) == ""
        assert {name: removed.files.get(name) for name in upgraded.files} == upgraded.files
        install(machine, newer)
        again = Moment.of(machine)
        assert (len(again.processes), again.files) == (len(installed.processes), removed.files)
        machine.run("apt-get", "--yes", "purge", "gateway-api", "gateway-relay", "gatewayctl")
        assert Moment.of(machine) == Moment(files={}, processes=[], programs=False, units="", users=set())
        assert "\ngateway-" not in (machine.root / "etc/group").read_text()


def test_without_its_core_the_api_goes_on_until_the_core_is_there_again(
    packages: dict[str, Path], tmp_path: Path
) -> None:
    with booted(tmp_path / "root") as machine, machine.network():
        here = Installed(machine, install(machine, packages.values()))
        choose_the_lab(machine)
        workers = machine.processes("gunicorn")
        machine.run("dpkg", "--remove", "gateway-core")
        assert machine.processes(PROGRAMS) == workers
        response = here.api().send("GET", "/health", None)
        assert response.json()["hint"] == CoreAbsent.HINT
        install(machine, [packages["gateway-core"]])
        wait_for("the core", here.serves)
        machine.run("dpkg", "--purge", "gateway-core")
        left = Moment.of(machine)
        assert left.processes == workers
        # The API is in the group of the core.
        assert "gateway-core" in left.users
        assert not any("factory.json" in name or "gateway-core" in name for name in left.files)


_OWN_CORE = """[Service]
User=gateway-core
StateDirectory=gateway-core
ExecStart=/bin/sh -c 'echo own > /var/lib/gateway-core/state; exec sleep infinity'
"""


def test_a_purge_leaves_state_and_user_of_a_core_that_is_not_of_the_packages(
    packages: dict[str, Path], tmp_path: Path
) -> None:
    with booted(tmp_path / "root") as machine, machine.network():
        install(machine, packages.values())
        (machine.root / OWN_CORE.lstrip("/")).write_text(_OWN_CORE)
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "start", "gateway-core")
        state = machine.root / "var/lib/gateway-core/state"
        wait_for("its state", state.exists)
        said = machine.run("dpkg", "--purge", *NAMES)
        assert f"/var/lib/gateway-core and the user gateway-core stay: {OWN_CORE} " in said
        assert state_of(machine, "gateway-core") == "active"
        assert state.read_text() == "own\n"
        left = Moment.of(machine)
        assert left.users == {"gateway-core"}
        # The core of the package may have begun before the other one took its place.
        assert {path for path in left.files if not path.startswith("var/lib/gateway-core/")} == set()
