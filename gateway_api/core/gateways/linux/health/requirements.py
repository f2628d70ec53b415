"""The requirements of a gateway on Linux to its machine: interfaces, kernel modules, programs, settings of
FRR.

Names of packages and places of files are those of Debian 12 and 13.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway_api.base.errors import GatewayApiError
from gateway_api.core.gateways.linux.program import run

#: Of the kernel, for any source.
MODULES = ("8021q", "ifb", "sch_htb", "sch_fq_codel", "sch_ingress", "act_mirred", "cls_u32")
#: Each with the package that has it.
_PROGRAMS: dict[str, str | None] = {"vtysh": "frr", "frr-reload.py": "frr-pythontools", "polkitd": "polkitd"}
_FOLDERS = ("usr/sbin", "usr/bin", "usr/local/sbin", "usr/local/bin", "usr/lib/frr", "usr/lib/polkit-1")
_BGPD = re.compile(r"^\s*bgpd=[\"']?(\w*)", re.MULTILINE)
_MODPROBE_SECONDS = 10.0
_MODPROBE_MOST = 1 << 16


@dataclass(frozen=True)
class SourceRequirements:
    """`types` are those of the VLAN profiles that the source serves. A program without a package is not in
    Debian."""

    types: tuple[str, ...]
    modules: tuple[str, ...]
    programs: Mapping[str, str | None]


#: By the name of the source. pppoe-server runs in user mode, through a terminal.
SOURCES = {
    "pppoe-server": SourceRequirements(
        ("pppoe",),
        ("ppp_generic", "ppp_async"),
        {"pppoe-server": "pppoe", "pppd": "ppp", "ip": "iproute2"},
    ),
    "dnsmasq": SourceRequirements(
        ("dhcp",), (), {"dnsmasq": "dnsmasq-base", "dhcp_release": "dnsmasq-utils"}
    ),
    "accel-ppp": SourceRequirements(
        ("pppoe", "dhcp"), ("ppp_generic", "pppoe"), {"accel-pppd": None, "accel-cmd": None}
    ),
}


class TwoSources(GatewayApiError):
    """Two sources serve one session type."""


@dataclass(frozen=True)
class Lack:
    """A thing that is missing, such as `programs: pppd`, and what the operator does: a command for a shell,
    where there is one."""

    what: str
    remedy: str


def interfaces(root: Path) -> list[str]:
    """The interfaces of the machine, without the loopback. `root` is the root of its file system, here and
    below."""
    found = (root / "sys/class/net").iterdir()
    # The driver of bonds has a file there.
    return sorted(path.name for path in found if path.name != "lo" and path.is_dir())


def serving(sources: Iterable[str]) -> dict[str, str]:
    """The name of the source of each session type. Raises TwoSources."""
    found: dict[str, str] = {}
    for name in sources:
        for type in SOURCES[name].types:
            if (other := found.setdefault(type, name)) != name:
                raise TwoSources(f"{other} and {name} both serve {type}: choose one")
    return found


def preferred(root: Path) -> list[str]:
    """The sources with all of their programs, one for each type. accel-ppp, which somebody has built then,
    comes before Debian's own daemons."""
    found: dict[str, str] = {}
    for name, source in reversed(SOURCES.items()):
        if not found.keys() & set(source.types) and not _missing_programs(root, source.programs):
            found |= dict.fromkeys(source.types, name)
    return list(dict.fromkeys(found.values()))


def lacks(root: Path, used: Collection[str], sources: Collection[str]) -> Iterator[Lack]:
    """The things that a gateway needs and does not have. `used` are its interfaces, `sources` are keys of
    `SOURCES`. Raises ProgramFailed and OSError."""
    found = interfaces(root)
    if absent := [name for name in used if name not in found]:
        yield Lack(f"interfaces: {', '.join(absent)}", f"this machine has {', '.join(found) or 'none'}")
    chosen = [SOURCES[name] for name in sources]
    if modules := _missing_modules(root, chosen):
        # The cloud kernel of Debian, for one, has no PPP.
        kernel = "apt-get install linux-image-$(dpkg --print-architecture), then reboot into that kernel"
        yield Lack(f"kernel modules: {', '.join(modules)}", kernel)
    programs = _PROGRAMS | {name: package for one in chosen for name, package in one.programs.items()}
    missing = _missing_programs(root, programs)
    if of_debian := {name: package for name, package in missing.items() if package}:
        packages = " ".join(dict.fromkeys(of_debian.values()))
        yield Lack(f"programs: {', '.join(of_debian)}", f"apt-get install {packages}")
    if others := [name for name, package in missing.items() if not package]:
        build = "build accel-ppp from https://github.com/accel-ppp/accel-ppp: Debian has no package of it"
        yield Lack(f"programs: {', '.join(others)}", build)
    daemons = root / "etc/frr/daemons"
    # The file comes with FRR. A shell reads it: the last value counts.
    if daemons.exists() and _BGPD.findall(daemons.read_text())[-1:] != ["yes"]:
        edit = r"sed -i '/^\s*bgpd=/d' /etc/frr/daemons && echo bgpd=yes >> /etc/frr/daemons"
        yield Lack("setting in /etc/frr/daemons: bgpd=yes", f"{edit} && systemctl restart frr")


def _missing_programs(root: Path, programs: Mapping[str, str | None]) -> dict[str, str | None]:
    return {
        name: package
        for name, package in programs.items()
        if not any(_is_program(root / folder / name) for folder in _FOLDERS)
    }


def _is_program(path: Path) -> bool:
    """For any user: pppd is for root and a group only, and the core, which looks too, is neither."""
    return path.is_file() and path.stat().st_mode & 0o111 != 0


def _missing_modules(root: Path, sources: Collection[SourceRequirements]) -> list[str]:
    release = (root / "proc/sys/kernel/osrelease").read_text().strip()
    place = ["--dirname", str(root), "--set-version", release]
    missing = []
    for name in dict.fromkeys([*MODULES, *(module for source in sources for module in source.modules)]):
        if not (root / "sys/module" / name).exists():
            command = ["modprobe", "--dry-run", "--quiet", *place, name]
            if run(command, seconds=_MODPROBE_SECONDS, most=_MODPROBE_MOST).status:
                missing.append(name)
    return missing
