"""The gateway's package on the virtual machine: files and units, with the Python programs of the tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from gateway_core.gateways.linux.daemons.daemon import SERVICES_FOLDER
from tests.support.frr import Frr
from tests.support.inside import as_accel_ppp
from tests.support.inside.homes import run
from tests.support.stack import make_state
from tests.support.virtual_machine import SHARED

PROGRAMS = Path("/opt/gateway-api")
CONFIGURATION = Path("/etc/gateway-api")
_REPOSITORY = Path(__file__).parents[3]
_UNITS = Path("/etc/systemd/system")
_FILES = "package"

#: The interpreter of the tests may be in somebody's home, or in /tmp.
_DROP_IN = "[Service]\nProtectHome=no\nPrivateTmp=no\nReadWritePaths=/tmp\nTimeoutStartSec=300\n"


def prepare(folder: Path) -> None:
    """Put into the folder that becomes SHARED what takes minutes in the emulator: the package's files,
    FRR's packages, and a folder of `make run` with its certificate and hashes. Runs outside."""
    environment = {**os.environ, "DESTDIR": str(folder / _FILES), "PREFIX": str(PROGRAMS)}
    subprocess.run([str(_REPOSITORY / "packaging" / "install-files")], env=environment, check=True)
    (folder / "frr").mkdir()
    Frr(folder / "frr")
    make_state(folder / "made")


def install() -> None:
    """Install as the package does. Afterwards its users exist, and systemd has its units."""
    run(f"cp --archive --no-preserve=ownership {SHARED / _FILES}/. /")
    environment = Path(sys.prefix)
    for name in ("bin", "lib", "pyvenv.cfg"):
        (PROGRAMS / name).symlink_to(environment / name)
    # The core is not root.
    for folder in (*environment.resolve().parents, *Path(sys.base_prefix).resolve().parents):
        folder.chmod(folder.stat().st_mode | 0o011)
    drop_in = _UNITS / "gateway-core-linux.service.d" / "tests.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(_DROP_IN)
    run("systemd-sysusers gateway-api.conf")
    run("systemctl daemon-reload")
    run("systemctl start dbus polkit")


def accel_ppp(interface: str) -> None:
    """Start the example unit of accel-ppp, with a program that stands in for it: see `as_accel_ppp`. Its file
    is as the core leaves one."""
    (_UNITS / "accel-ppp.service").write_text((_REPOSITORY / "packaging" / "accel-ppp.service").read_text())
    program, configuration = Path("/usr/sbin/accel-pppd"), SERVICES_FOLDER / "accel-ppp.conf"
    program.write_text(f"#!/usr/bin/python3 -I\n{Path(as_accel_ppp.__file__).read_text()}")
    program.chmod(0o755)
    configuration.write_text(f"{interface}\n")
    configuration.chmod(0o600)
    shutil.chown(configuration, SERVICES_FOLDER.owner())
    run("systemctl daemon-reload")
    run("systemctl start --no-block accel-ppp")
