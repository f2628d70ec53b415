"""The Debian package after an earlier one, and when it leaves: what stays is the operator's."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.machine import Machine, booted
from tests.support.package import PROGRAMS, Installed, choose_the_lab, install, repacked, state_of
from tests.support.stack import wait_for


@pytest.fixture(scope="module")
def newer(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same package as a later version, with changes to files that operators edit and that they don't."""

    def change(tree: Path) -> None:
        control = tree / "DEBIAN" / "control"
        control.write_text(re.sub(r"(?m)^Version: .*", "Version: 99", control.read_text()))
        for name, line in (("factory.json", " \n"), ("gateway-api.env", "# of version 99\n")):
            with (tree / "etc" / "gateway-api" / name).open("a") as file:
                file.write(line)

    return repacked(package, tmp_path_factory.mktemp("newer") / "tree", change)


#: What the package did while gateway-core.service was the lab's own unit.
_FORMER_POSTINST = """#!/bin/sh
set -e
/usr/lib/gateway-api/bin/gateway-api-setup
for service in gateway-core.service gateway-api.service; do
    deb-systemd-helper enable $service
    deb-systemd-helper update-state $service
done
systemctl daemon-reload
deb-systemd-invoke restart gateway-core.service gateway-api.service
"""


#: Of gunicorn, which a later version does not read.
FORMER_CONFFILES = ("etc/gateway-api/gunicorn.conf.py", "etc/gateway-api/gunicorn-token.conf.py")


@pytest.fixture(scope="module")
def former(compiled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as an earlier version, whose core was the lab, whatever the operator wanted."""

    def change(tree: Path) -> None:
        control = tree / "DEBIAN" / "control"
        control.write_text(re.sub(r"(?m)^Version: .*", "Version: 0", control.read_text()))
        (tree / "DEBIAN" / "postinst").write_text(_FORMER_POSTINST)
        units = tree / "usr/lib/systemd/system"
        lab = units / "gateway-core-lab.service"
        (units / "gateway-core.service").write_text(re.sub("(?m)^Alias=.*\n", "", lab.read_text()))
        lab.unlink()
        for name in FORMER_CONFFILES:
            (tree / name).write_text("workers = 2\n")
            with (tree / "DEBIAN" / "conffiles").open("a") as file:
                file.write(f"/{name}\n")

    return repacked(compiled, tmp_path_factory.mktemp("former") / "tree", change)


@pytest.fixture
def here(former: Path, tmp_path: Path) -> Iterator[Installed]:
    """A machine with the former version."""
    with booted(tmp_path / "root") as machine, machine.network():
        yield Installed(machine, install(machine, former))


@pytest.mark.parametrize("chosen", [True, False])
def test_an_upgrade_keeps_the_core_of_an_earlier_version_where_it_ran(
    here: Installed, compiled: Path, chosen: bool
) -> None:
    machine = here.machine
    assert here.serves()
    if not chosen:
        machine.run("systemctl", "disable", "--now", "gateway-core")
    before = machine.processes("gateway_core")
    assert bool(before) == chosen
    install(machine, compiled)
    assert here.serves() == chosen
    after = machine.processes("gateway_core")
    assert len(after) == len(before)
    assert set(after).isdisjoint(before)
    state = "enabled" if chosen else "disabled"
    assert machine.attempt("systemctl", "is-enabled", "gateway-core-lab").stdout == f"{state}\n"


def test_an_upgrade_that_was_killed_is_finished_by_the_next_with_the_lab_running(
    here: Installed, compiled: Path
) -> None:
    machine = here.machine
    killer = machine.root / "root/faults/deb-systemd-helper"
    killer.parent.mkdir()
    # Stands in for a power cut when the postinst is about to forget the former unit.
    killer.write_text("#!/bin/sh\nkill -9 $PPID\n")
    killer.chmod(0o755)
    shutil.copyfile(compiled, machine.root / "root" / compiled.name)
    upgrade = f"PATH=/root/faults:$PATH dpkg --install /root/{compiled.name}"
    assert "killed by signal" in machine.attempt("sh", "-c", upgrade).stdout
    machine.run("systemctl", "stop", "gateway-core")
    machine.run("dpkg", "--configure", "gateway-api")
    assert machine.run("systemctl", "is-enabled", "gateway-core-lab") == "enabled\n"
    assert here.serves()
    wants = machine.root / "etc/systemd/system/multi-user.target.wants"
    assert not (wants / "gateway-core.service").is_symlink()


def test_an_upgrade_removes_the_former_configuration_of_gunicorn_and_keeps_a_changed_one_aside(
    here: Installed, compiled: Path
) -> None:
    machine = here.machine
    changed, untouched = (machine.root / name for name in FORMER_CONFFILES)
    with changed.open("a") as file:
        file.write("# an operator's\n")
    drop_in = machine.root / "etc/systemd/system/gateway-api-token.service.d/own.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nEnvironment=FILE=/etc/gateway-api/gunicorn-token.conf.py\n")
    said = install(machine, compiled)
    assert "own.conf: gunicorn's configuration is not in /etc/gateway-api" in said
    assert "/etc/gateway-api/gunicorn.conf.py is no longer read" in said
    assert "gunicorn-token.conf.py is no longer read" not in said
    aside = changed.with_name("gunicorn.conf.py.dpkg-bak")
    assert aside.read_text() == "workers = 2\n# an operator's\n"
    assert not changed.exists()
    assert not untouched.exists()
    assert here.serves()
    assert "no longer read" not in install(machine, compiled)


OWN_CORE = "/etc/systemd/system/gateway-core.service"


@pytest.mark.parametrize("choice", ["edited", "masked"])
def test_an_upgrade_leaves_a_core_of_the_operator_s_own_as_it_is(
    here: Installed, compiled: Path, choice: str
) -> None:
    machine = here.machine
    if choice == "edited":
        # What `systemctl edit --full` does.
        machine.run("cp", "/usr/lib/systemd/system/gateway-core.service", OWN_CORE)
        machine.run("systemctl", "daemon-reload")
    else:
        machine.run("systemctl", "mask", "gateway-core")
    drop_in = machine.root / "etc/systemd/system/gateway-api.service.d/own.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nEnvironment=PROGRAMS=/opt/gateway-api\n")
    file = ("stat", "--format=%i %N", OWN_CORE)
    before = machine.processes("gateway_core"), machine.run(*file)
    said = install(machine, compiled)
    assert (machine.processes("gateway_core"), machine.run(*file)) == before
    assert here.serves()
    assert machine.attempt("systemctl", "is-enabled", "gateway-core-lab").stdout == "disabled\n"
    # It still starts with the machine.
    assert (machine.root / "etc/systemd/system/multi-user.target.wants/gateway-core.service").is_symlink()
    assert f"{OWN_CORE} isn't of this package" in said
    assert "own.conf: /opt/gateway-api" in said


@dataclass
class Moment:
    """What a machine holds of the package at a moment. `files` are those of operators and of the core."""

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
    package: Path, newer: Path, tmp_path: Path
) -> None:
    with booted(tmp_path / "root") as machine, machine.network():
        here = Installed(machine, install(machine, package))
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
        # The core writes its database of jobs at each start.
        kept = {name: held for name, held in installed.files.items() if "/jobs/jobs.sqlite" not in name}
        del kept["etc/gateway-api/gateway-api.env"]
        assert any(name.startswith("var/lib/gateway-core/configuration/") for name in kept)
        assert {name: upgraded.files.get(name) for name in kept} == kept
        machine.run("dpkg", "--remove", "gateway-api")
        removed = Moment.of(machine)
        assert (removed.processes, removed.programs) == ([], False)
        # What stays is the name of the core that the operator has chosen.
        assert re.sub("(?m)^gateway-core.service .*\n", "", removed.units) == ""
        assert {name: removed.files.get(name) for name in upgraded.files} == upgraded.files
        install(machine, newer)
        again = Moment.of(machine)
        assert (len(again.processes), again.files) == (len(installed.processes), removed.files)
        machine.run("dpkg", "--purge", "gateway-api")
        assert Moment.of(machine) == Moment(files={}, processes=[], programs=False, units="", users=set())


_OWN_CORE = """[Service]
User=gateway-core
StateDirectory=gateway-core
ExecStart=/bin/sh -c 'echo own > /var/lib/gateway-core/state; exec sleep infinity'
"""


def test_a_purge_leaves_state_and_user_of_a_core_that_is_not_of_the_package(
    compiled: Path, tmp_path: Path
) -> None:
    with booted(tmp_path / "root") as machine, machine.network():
        install(machine, compiled)
        (machine.root / OWN_CORE.lstrip("/")).write_text(_OWN_CORE)
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "start", "gateway-core")
        state = machine.root / "var/lib/gateway-core/state"
        wait_for("its state", state.exists)
        said = machine.run("dpkg", "--purge", "gateway-api")
        assert f"/var/lib/gateway-core and the user gateway-core stay: {OWN_CORE} " in said
        assert state_of(machine, "gateway-core") == "active"
        assert state.read_text() == "own\n"
        left = Moment.of(machine)
        assert left.users == {"gateway-core"}
        # The core of the package may have begun before the other one took its place.
        assert {path for path in left.files if not path.startswith("var/lib/gateway-core/")} == set()
