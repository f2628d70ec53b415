"""The gateway's package on the virtual machine: its files and units, with the Python programs of the tests.

systemd is the first process of a machine of its own: see `script_under_systemd`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from gateway_api.core.gateways.linux.daemons.daemon import SERVICES
from tests.support.inside import as_accel_ppp
from tests.support.inside.homes import run

PROGRAMS = Path("/opt/gateway-api")
CONFIGURATION = Path("/etc/gateway-api")
_REPOSITORY = Path(__file__).parents[3]
_UNITS = Path("/etc/systemd/system")

#: The interpreter of the tests may be in somebody's home, or in /tmp.
_DROP_IN = "[Service]\nProtectHome=no\nPrivateTmp=no\nReadWritePaths=/tmp\nTimeoutStartSec=300\n"

_UNDER_SYSTEMD = """\
# Nothing of the machine's own services: each would take seconds.
rm -rf /etc/systemd/system/*.wants /etc/systemd/system/default.target /lib/systemd/system/*.target.wants
: > /etc/machine-id
cat > /etc/systemd/system/script.service <<UNIT
[Unit]
DefaultDependencies=no
Wants=systemd-journald.service
After=systemd-journald.service
[Service]
Type=oneshot
Environment=PATIENCE=$PATIENCE
WorkingDirectory={repository}
StandardOutput=append:{output}
StandardError=append:{errors}
ExecStart={command}
# Not in order: each service would have its time to stop.
ExecStopPost=/bin/systemctl exit --force --no-block
UNIT
# systemd makes it for a machine that boots with udev.
[ -e /dev/ppp ] || mknod /dev/ppp c 108 0
unshare --pid --mount --net --fork --kill-child bash -c '
    mount --make-rshared /
    mount -t tmpfs -o mode=0755 memory /run
    # As systemd-tmpfiles makes it, for the group that reads the log.
    install --directory --mode=2755 --group=systemd-journal /run/log/journal
    mount -t proc proc /proc
    mount -t sysfs sysfs /sys
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    container=test exec /lib/systemd/systemd --system --unit=script.service --show-status=no --log-target=null
' < /dev/null
"""


def script_under_systemd(command: str, output: Path, errors: Path) -> str:
    """A script of bash for the virtual machine: runs a command under systemd, with a network and processes of
    its own. Quotes are not for it."""
    return _UNDER_SYSTEMD.format(repository=_REPOSITORY, output=output, errors=errors, command=command)


def install() -> None:
    """As the package does; then its users exist, and systemd has its units."""
    PROGRAMS.mkdir(parents=True)
    environment = Path(sys.prefix)
    for name in ("bin", "lib", "pyvenv.cfg"):
        (PROGRAMS / name).symlink_to(environment / name)
    files = [str(_REPOSITORY / "packaging" / "install-files")]
    subprocess.run(files, env={**os.environ, "PREFIX": str(PROGRAMS)}, check=True)
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
    """Starts the example unit of accel-ppp, with a program that stands in for it: see `as_accel_ppp`. Its
    file is as the core leaves one."""
    (_UNITS / "accel-ppp.service").write_text((_REPOSITORY / "packaging" / "accel-ppp.service").read_text())
    program, configuration = Path("/usr/sbin/accel-pppd"), SERVICES / "accel-ppp.conf"
    program.write_text(f"#!/usr/bin/python3 -I\n{Path(as_accel_ppp.__file__).read_text()}")
    program.chmod(0o755)
    configuration.write_text(f"{interface}\n")
    configuration.chmod(0o600)
    shutil.chown(configuration, SERVICES.owner())
    run("systemctl daemon-reload")
    run("systemctl start --no-block accel-ppp")
