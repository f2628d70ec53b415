"""The requirements of a gateway on Linux to its machine: interfaces, kernel modules, programs, settings.

Names of packages and places of files are those of Debian 12 and 13.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gateway_contract.base.errors import GatewayApiError
from gateway_core.gateways.linux.daemons.daemon import Lack, ServiceDaemon, SourceDaemon
from gateway_core.gateways.linux.daemons.linux_services import DAEMONS
from gateway_core.gateways.linux.program import run

#: By the name of the source.
SOURCES = {each.name: each for each in DAEMONS if issubclass(each, SourceDaemon)}

#: Of the kernel, for any gateway.
MODULES = ("8021q", "ifb", "sch_tbf", "sch_fq_codel", "sch_ingress", "act_mirred", "cls_u32", "nft_fib_inet")
_PROGRAMS: dict[str, str | None] = {"polkitd": "polkitd", "nft": "nftables"}
_FOLDERS = ("usr/sbin", "usr/bin", "usr/local/sbin", "usr/local/bin", "usr/lib/frr", "usr/lib/polkit-1")
_MODPROBE_SECONDS = 10.0
_MODPROBE_MOST = 1 << 16


class TwoSources(GatewayApiError):
    """Two sources serve one session type."""


def interfaces(root: Path) -> list[str]:
    """Return the interfaces of the machine, without the loopback. `root` is the root of its file system, here
    and below."""
    found = (root / "sys/class/net").iterdir()
    # The driver of bonds has a file there.
    return sorted(path.name for path in found if path.name != "lo" and path.is_dir())


def serving(sources: Iterable[str]) -> dict[str, str]:
    """Return the name of the source of each session type. Raises TwoSources."""
    found: dict[str, str] = {}
    for name in sources:
        for type in SOURCES[name].types:
            if (other := found.setdefault(type, name)) != name:
                raise TwoSources(f"{other} and {name} both serve {type}: choose one")
    return found


def preferred(root: Path) -> list[str]:
    """Return the sources with all of their programs, one for each type. accel-ppp, which somebody has built
    then, comes before Debian's own daemons."""
    found: dict[str, str] = {}
    for name, source in reversed(SOURCES.items()):
        if not found.keys() & set(source.types) and not _missing_programs(root, source.programs):
            found |= dict.fromkeys(source.types, name)
    return list(dict.fromkeys(found.values()))


def lacks(root: Path, used: Sequence[str], sources: Sequence[str]) -> Iterator[Lack]:
    """The things that a gateway needs and does not have. `used` are its interfaces, `sources` are keys of
    `SOURCES`. Raises ProgramFailed and OSError."""
    found = interfaces(root)
    if absent := [name for name in used if name not in found]:
        yield Lack(f"interfaces: {', '.join(absent)}", f"this machine has {', '.join(found) or 'none'}")
    always: list[type[ServiceDaemon]] = [each for each in DAEMONS if each.name not in SOURCES]
    chosen = [SOURCES[name] for name in sources]
    daemons = [*always, *chosen]
    if modules := _missing_modules(root, daemons):
        # The cloud kernel of Debian, for one, has no PPP.
        kernel = "apt-get install linux-image-$(dpkg --print-architecture), then reboot into that kernel"
        yield Lack(f"kernel modules: {', '.join(modules)}", kernel)
    missing = _missing_programs(root, _programs(always) | _PROGRAMS | _programs(chosen))
    if of_debian := {name: package for name, package in missing.items() if package}:
        packages = " ".join(dict.fromkeys(of_debian.values()))
        yield Lack(f"programs: {', '.join(of_debian)}", f"apt-get install {packages}")
    for daemon in daemons:
        if others := [name for name in daemon.programs if name in missing and name not in of_debian]:
            yield Lack(f"programs: {', '.join(others)}", daemon.remedy)
    for daemon in daemons:
        yield from daemon.lacks(root)


def _programs(daemons: Iterable[type[ServiceDaemon]]) -> dict[str, str | None]:
    return {name: package for each in daemons for name, package in each.programs.items()}


def _missing_programs(root: Path, programs: Mapping[str, str | None]) -> dict[str, str | None]:
    return {
        name: package
        for name, package in programs.items()
        if not any(_is_program(root / folder / name) for folder in _FOLDERS)
    }


def _is_program(path: Path) -> bool:
    """For any user: pppd is for root and a group only, and the core, which looks too, is neither."""
    return path.is_file() and path.stat().st_mode & 0o111 != 0


def _missing_modules(root: Path, daemons: Sequence[type[ServiceDaemon]]) -> list[str]:
    release = (root / "proc/sys/kernel/osrelease").read_text().strip()
    place = ["--dirname", str(root), "--set-version", release]
    missing = []
    for name in dict.fromkeys([*MODULES, *(module for daemon in daemons for module in daemon.modules)]):
        if not (root / "sys/module" / name).exists():
            command = ["modprobe", "--dry-run", "--quiet", *place, name]
            if run(command, seconds=_MODPROBE_SECONDS, most=_MODPROBE_MOST).status:
                missing.append(name)
    return missing
