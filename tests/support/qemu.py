"""QEMU with the kernel that Debian installs, on any processor: emulated, and ten times slower than that."""

import gzip
import re
import shutil
import subprocess
from pathlib import Path

#: What the initial file system needs to reach this machine's files.
_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console", "virtio_rng")

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
$busybox chroot /root /bin/bash /mnt/shared/script > /root/mnt/shared/output 2>&1
echo $? > /root/mnt/shared/status
$busybox dmesg > /root/mnt/shared/kernel.log
$busybox sync
$busybox poweroff -f
"""

#: The kernel runs it for a device or qdisc whose module it lacks, and looks for it in the first file system.
_MODPROBE = """\
#!/bin/busybox sh
exec /bin/busybox chroot /root /sbin/modprobe "$@"
"""


def machine(folder: Path) -> list[str]:
    """As tests.support.uml."""
    root = folder / "kernel"
    image = _unpacked(folder, root)
    initial = folder / "initial.gz"
    initial.write_bytes(_initial(root, image.name.removeprefix("vmlinuz-"), folder / "initial"))
    command = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-M", "q35"]
    # One processor: two take twice the time of this machine. One spins for a lock while the machine does not
    # run the other, which has it.
    command += ["-smp", "1", "-m", "2048", "-nodefaults", "-no-user-config", "-nographic"]
    command += ["-serial", "stdio", "-kernel", str(image), "-initrd", str(initial), "-no-reboot"]
    # Without no_timer_check, the kernel panics where a busy machine delays its timer.
    command += ["-append", "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable no_timer_check"]
    for tag, path, more in (
        ("host", "/", ",readonly=on,multidevs=remap"),
        ("shared", str(folder), ""),
        ("modules", str(root / "lib" / "modules"), ",readonly=on"),
    ):
        command += ["-virtfs", f"local,security_model=none,path={path},mount_tag={tag}{more}"]
    return command


def _unpacked(folder: Path, root: Path) -> Path:
    """The image of Debian's newest kernel for its release, from its package, which is not installed."""
    depends = _output("apt-cache", "depends", "linux-image-amd64")
    (package,) = re.findall(r"Depends: (linux-image-\S+)", depends)
    _output("apt-get", "download", "--quiet", package, cwd=folder)
    (archive,) = folder.glob("*.deb")
    _output("dpkg-deb", "--extract", str(archive), str(root))
    archive.unlink()
    (image,) = (root / "boot").glob("vmlinuz-*")
    _output("depmod", "--basedir", str(root), image.name.removeprefix("vmlinuz-"))
    return image


def _initial(root: Path, version: str, folder: Path) -> bytes:
    """A file system in memory: busybox, the modules in the order in which they load, and the init program."""
    for name in ("bin", "sbin", "modules", "proc", "sys", "dev", "host", "memory", "root"):
        (folder / name).mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox is not None
    shutil.copy(busybox, folder / "bin" / "busybox")
    order: list[str] = []
    for module in _MODULES:
        needed = _output(
            "modprobe", "--dirname", str(root), "--set-version", version, "--show-depends", module
        )
        for path in re.findall(r"insmod (\S+)", needed):
            name = Path(path).name
            if name not in order:
                order.append(name)
                shutil.copy(path, folder / "modules" / name)
    (folder / "modules" / "order").write_text("".join(f"{name}\n" for name in order))
    for program, text in (("init", _INIT), ("sbin/modprobe", _MODPROBE)):
        (folder / program).write_text(text)
        (folder / program).chmod(0o755)
    names = "\n".join(str(path.relative_to(folder)) for path in sorted(folder.rglob("*")))
    archive = subprocess.run(
        ["cpio", "--create", "--format=newc", "--quiet"],
        input=names.encode(),
        capture_output=True,
        cwd=folder,
        check=True,
    )
    return gzip.compress(archive.stdout, 1)


def _output(*command: str, cwd: Path | None = None) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    assert ended.returncode == 0, f"{command}: {ended.stderr}"
    return ended.stdout
