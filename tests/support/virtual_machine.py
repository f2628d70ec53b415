"""A virtual machine that runs one program of the tests on Debian's kernel, over this machine's files.

That kernel has PPP, VLANs and traffic shaping, which the kernel of a container may lack. QEMU emulates it, on
any processor, some ten times slower than that. The machine writes to memory, has no network, and ends with
the program, which systemd runs.
"""

import gzip
import json
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

_REPOSITORY = Path(__file__).parents[2]
#: The folder of the machine that outlives it.
SHARED = Path("/mnt/shared")
_REPORT = "report"
#: What the initial file system needs to reach this machine's files.
_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console", "virtio_rng")
#: A line of the kernel's log about a program that the emulator may have made crash.
_CRASH = re.compile(
    r"(?:traps: )?([^][ ]+\[[0-9]+\]:? (?:segfault|trap [a-z ]*opcode|general protection fault))"
)
_CONSOLE_LINES = 200

_INIT = """\
#!/bin/busybox sh
busybox=/bin/busybox
$busybox mount -t proc proc /proc
$busybox mount -t sysfs sys /sys
$busybox mount -t devtmpfs dev /dev
while read -r module; do $busybox insmod "/modules/$module"; done < /modules/order
shared=trans=virtio,version=9p2000.L,msize=262144
$busybox mount -t 9p -o "ro,$shared,cache=loose" host /host
$busybox mount -t tmpfs memory /memory
$busybox mkdir /memory/upper /memory/work
$busybox mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay /root
$busybox mkdir -p /root/mnt/shared /root/usr/lib/modules
$busybox mount -t 9p -o "$shared" shared /root/mnt/shared
$busybox mount -t 9p -o "ro,$shared,cache=loose" modules /root/usr/lib/modules
for folder in proc sys dev; do $busybox mount --move "/$folder" "/root/$folder"; done
$busybox mkdir -p /root/dev/pts /root/dev/shm
$busybox mount -t devpts devpts /root/dev/pts
# Not on /tmp: this machine may have the repository there.
for folder in dev/shm run; do $busybox mount -t tmpfs memory "/root/$folder"; done
$busybox ip link set lo up
$busybox chroot /root /bin/bash -eu /mnt/shared/script 2>&1
$busybox dmesg > /root/mnt/shared/kernel.log
$busybox sync
$busybox poweroff -f
"""

#: The kernel runs it for a device or qdisc whose module it lacks, and looks for it in the first file system.
_MODPROBE = """\
#!/bin/busybox sh
exec /bin/busybox chroot /root /sbin/modprobe "$@"
"""

#: Runs systemd as the first process of a namespace, without the services of this machine: each takes seconds.
_SCRIPT = """\
rm -rf /etc/systemd/system/*.wants /etc/systemd/system/default.target /lib/systemd/system/*.target.wants
: > /etc/machine-id
cat > /etc/systemd/system/script.service <<UNIT
[Unit]
DefaultDependencies=no
Wants=systemd-journald.service
After=systemd-journald.service
[Service]
Type=oneshot
# Seconds that the tests wait for something.
Environment=PATIENCE=300
WorkingDirectory={repository}
StandardOutput=append:{shared}/log
StandardError=append:{shared}/log
ExecStart={command}
# Not in order: each service would have its time to stop.
ExecStopPost=/bin/systemctl exit --force --no-block
UNIT
# systemd makes it for a machine that boots with udev.
[ -e /dev/ppp ] || mknod /dev/ppp c 108 0
unshare --pid --mount --fork --kill-child bash -c '
    mount --make-rshared /
    mount -t tmpfs -o mode=0755 memory /run
    # As systemd-tmpfiles makes it, for the group that reads the log.
    install --directory --mode=2755 --group=systemd-journal /run/log/journal
    mount -t proc proc /proc
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    container=test exec /lib/systemd/systemd --system --unit=script.service --show-status=no --log-target=null
' < /dev/null
"""


class Report:
    """What the pieces of a program saw, as far as the program came, and how the machine ended."""

    def __init__(self, folder: Path, end: str) -> None:
        self.end = end
        self._folder = folder
        lines = _text(folder / _REPORT).split("\n")[:-1]
        self._pieces: dict[str, dict[str, Any]] = {line["piece"]: line for line in map(json.loads, lines)}

    def of(self, piece: str) -> Any:
        """Return what a piece saw. Fails the test if the piece failed, or never ended."""
        found = self._pieces.get(piece, {"error": f"{piece} did not end: {self.end}"})
        if "error" in found:
            crashes = _CRASH.findall(_text(self._folder / "kernel.log"))
            console = _text(self._folder / "console").splitlines()[-_CONSOLE_LINES:]
            log = _text(self._folder / "log").splitlines()[-_CONSOLE_LINES:]
            pytest.fail(
                "\n".join([found["error"], *crashes, "Console:", *console, "Log:", *log]), pytrace=False
            )
        return found["seen"]

    def seconds(self) -> dict[str, int]:
        """Return how long each piece took."""
        return {name: found["seconds"] for name, found in self._pieces.items()}


def run_pieces(pieces: Iterable[Callable[..., Any]], *arguments: object) -> None:
    """In the machine: run the pieces in order, and report what each returns as soon as it ends. A piece may
    fail."""
    with (SHARED / _REPORT).open("a") as report:
        for piece in pieces:
            began, line = time.monotonic(), {"piece": piece.__name__}
            try:
                line["seen"] = piece(*arguments)
            except Exception:  # noqa: BLE001 - the other pieces are worth a look
                line["error"] = traceback.format_exc()
            line["seconds"] = round(time.monotonic() - began)
            report.write(json.dumps(line) + "\n")
            report.flush()


def run_in_machine(module: str, folder: Path, timeout: float, *arguments: str) -> Report:
    """Boot the machine once, and run a module of the tests in it as root. `folder` is its SHARED. The timeout
    is in seconds."""
    command = " ".join([sys.executable, "-m", module, *arguments])
    script = _SCRIPT.format(repository=_REPOSITORY, shared=SHARED, command=command)
    (folder / "script").write_text(script)
    kernel = folder / "kernel"
    with (folder / "console").open("wb") as console:
        machine = subprocess.Popen(
            _machine(folder, kernel), stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT
        )
        try:
            status = machine.wait(timeout)
            end = f"the emulator crashed ({signal.Signals(-status).name})" if status < 0 else "powered off"
        except subprocess.TimeoutExpired:
            end = f"the machine ran longer than {timeout:g} s"
        finally:
            machine.kill()
            machine.wait()
            shutil.rmtree(kernel)
    return Report(folder, end)


def _machine(folder: Path, kernel: Path) -> list[str]:
    """Return the command of the emulator. Its output is the console."""
    image = _unpack_kernel(folder, kernel)
    initial = folder / "initial.gz"
    initial.write_bytes(_initial_files(kernel, image.name.removeprefix("vmlinuz-"), folder / "initial"))
    # The machine's clock counts instructions while it works. A busy host gives the emulator little time, but
    # ends no deadline in the machine.
    command = ["nice", "--adjustment=-10"]
    command += ["qemu-system-x86_64", "-accel", "tcg,thread=single", "-icount", "shift=2,sleep=on"]
    command += ["-cpu", "max", "-M", "q35"]
    # One processor: two take twice the time of this machine. One spins for a lock while the machine does not
    # run the other, which has it.
    command += ["-smp", "1", "-m", "2048", "-nodefaults", "-no-user-config", "-nographic"]
    command += ["-serial", "stdio", "-kernel", str(image), "-initrd", str(initial), "-no-reboot"]
    # Without no_timer_check, the kernel panics where a busy machine delays its timer.
    command += ["-append", "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable no_timer_check"]
    for tag, path, more in (
        ("host", "/", ",readonly=on,multidevs=remap"),
        ("shared", str(folder), ""),
        ("modules", str(kernel / "lib" / "modules"), ",readonly=on"),
    ):
        command += ["-virtfs", f"local,security_model=none,path={path},mount_tag={tag}{more}"]
    return command


def _unpack_kernel(folder: Path, kernel: Path) -> Path:
    """Return the image of Debian's newest kernel for its release, from a package that is not installed."""
    depends = _output("apt-cache", "depends", "linux-image-amd64")
    (package,) = re.findall(r"Depends: (linux-image-\S+)", depends)
    _output("apt-get", "download", "--quiet", package, cwd=folder)
    (archive,) = folder.glob("*.deb")
    _output("dpkg-deb", "--extract", str(archive), str(kernel))
    archive.unlink()
    (image,) = (kernel / "boot").glob("vmlinuz-*")
    _output("depmod", "--basedir", str(kernel), image.name.removeprefix("vmlinuz-"))
    return image


def _initial_files(kernel: Path, version: str, folder: Path) -> bytes:
    """Return a file system in memory: busybox, the modules in the order in which they load, and `init`."""
    for name in ("bin", "sbin", "modules", "proc", "sys", "dev", "host", "memory", "root"):
        (folder / name).mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox is not None
    shutil.copy(busybox, folder / "bin" / "busybox")
    modprobe = ["modprobe", "--dirname", str(kernel), "--set-version", version, "--show-depends", "--all"]
    paths = dict.fromkeys(re.findall(r"insmod (\S+)", _output(*modprobe, *_MODULES)))
    for path in paths:
        shutil.copy(path, folder / "modules")
    (folder / "modules" / "order").write_text("".join(f"{Path(path).name}\n" for path in paths))
    for program, text in (("init", _INIT), ("sbin/modprobe", _MODPROBE)):
        (folder / program).write_text(text)
        (folder / program).chmod(0o755)
    names = "\n".join(str(path.relative_to(folder)) for path in sorted(folder.rglob("*")))
    archive = ["cpio", "--create", "--format=newc", "--quiet"]
    made = subprocess.run(archive, input=names.encode(), stdout=subprocess.PIPE, cwd=folder, check=True)
    return gzip.compress(made.stdout, 1)


def _output(*command: str, cwd: Path | None = None) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=cwd, check=True).stdout


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
