"""A machine to install things on: a booted systemd in a container, over this machine's own files, or those of
another release of Debian.

What it writes is in memory, its network is its own, and both end with it.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tests.support.namespaces import network_of
from tests.support.stack import descendants, wait_for

#: Its mounts are in a private namespace, so nothing stays after the tests. Services of this machine do not
#: start there. It has its own control group: two machines would mix up their services. It has no index of man
#: pages, which takes longer to make than a package to install, and no settings of this machine's root.
_BOOT = """
set -e
for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
    if [ -e "$hierarchy/cgroup.procs" ]; then
        mkdir "$hierarchy/$2"
        echo 0 > "$hierarchy/$2/cgroup.procs"
    fi
done
mount -t tmpfs -o mode=755 tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=$3,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
: > "$1/root/etc/machine-id"
rm -rf "$1/root/etc/systemd/system/"*.wants "$1/root/usr/sbin/policy-rc.d"
rm -f "$1/root/var/lib/man-db/auto-update"
rm -rf "$1/root/root/.config"
exec systemd-nspawn --quiet --register=no --keep-unit --private-network --boot --directory="$1/root" \\
    --console=pipe --link-journal=no
"""
_NUMBERS = count()


class Machine:
    """A booted machine. `leader` is the process id of its systemd, outside the container."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self.root = Path(f"/proc/{leader}/root")

    def run(self, *command: str, timeout: float = 120) -> str:
        """Return the output of a command, which must succeed."""
        ended = self.attempt(*command, timeout=timeout)
        assert ended.returncode == 0, f"{command}: {ended.stdout}"
        return ended.stdout

    def attempt(self, *command: str, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
        """Run a command, and join its two outputs."""
        return subprocess.run(
            self.entering(*command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )

    def entering(self, *command: str) -> list[str]:
        """Return the command that runs `command` in the machine."""
        return ["nsenter", f"--target={self._leader}", "--all", *command]

    def is_up(self) -> bool:
        return self.attempt("systemctl", "is-system-running").stdout.strip() in ("running", "degraded")

    def processes(self, word: str) -> list[int]:
        """Return the process ids, outside the container, of commands with a word in them, parents first."""
        found = []
        for pid in descendants(self._leader):
            try:
                if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
            except OSError:
                continue
        return found

    @contextmanager
    def network(self) -> Iterator[None]:
        """Open sockets of this thread and its new threads in the machine's network, for the block."""
        with network_of(self._leader):
            yield


@contextmanager
def booted(folder: Path, files: Path = Path("/")) -> Iterator[Machine]:
    """Boot a machine with these files, until the end of the block. Requires root."""
    folder.mkdir()
    log = folder.with_suffix(".log")
    group = f"gateway-api-test-{os.getpid()}-{next(_NUMBERS)}"
    with log.open("wb") as console:
        process = subprocess.Popen(
            [
                # If the tests are killed, the machine and its processes must end too.
                *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"),
                *("--mount-proc", "sh", "-c", _BOOT, "sh", str(folder), group, str(files)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
        )

    def leader() -> int | None:
        assert process.poll() is None, log.read_text()
        return next(filter(_is_a_machine_s_first, descendants(process.pid)), None)

    try:
        machine = Machine(wait_for("the machine's systemd", leader))
        wait_for("the machine to be up", machine.is_up)
        yield machine
    finally:
        started = descendants(process.pid)
        process.kill()
        process.wait(60)
        wait_for("the machine to be gone", lambda: all(gone(pid) for pid in started), 10)
        # Not by a walk through all groups: those of other machines vanish meanwhile.
        for mount in ("", "systemd", "unified"):
            own = Path("/sys/fs/cgroup", mount, group)
            if own.exists():
                for path in [*sorted(own.rglob("*/"), reverse=True), own]:
                    path.rmdir()


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def _is_a_machine_s_first(pid: int) -> bool:
    """Return True for the first process in a namespace within ours."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    ids = _ids(status)
    return len(ids) == len(_ids(Path("/proc/self/status").read_text())) + 2 and ids[-1] == "1"


def _ids(status: str) -> list[str]:
    """Return the ids of a process in each of its namespaces, outermost first."""
    (ids,) = re.findall(r"(?m)^NSpid:(.*)", status)
    return str(ids).split()
