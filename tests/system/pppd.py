"""pppd's own parsers of secrets and of its RADIUS client, from Debian's package, not installed.

pppd is a program, and glibc doesn't load programs. A copy without the mark that says so can be loaded, and
its functions called. That happens in a process of its own: `python -m tests.system.pppd`.
"""

import ctypes
import json
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.debian import unpacked

_REPOSITORY = Path(__file__).parents[2]
_TIMEOUT = 60
#: The version whose functions this module calls.
_VERSION = "2.4.9"

# elf(5).
_PT_DYNAMIC, _DT_FLAGS_1, _DF_1_PIE = 2, 0x6FFFFFFB, 0x08000000
_SHT_DYNSYM, _SHT_VERSYM = 11, 0x6FFFFFFF


class Pppd:
    """Debian's package, unpacked into a folder."""

    def __init__(self, folder: Path) -> None:
        if platform.machine() != "x86_64":
            pytest.skip("what is called here is of amd64")
        try:
            root = unpacked(folder, lambda: ("ppp", "libpcap0.8"))
        except subprocess.CalledProcessError:
            pytest.skip("this release of Debian has other packages")
        plugins = [*root.glob(f"usr/lib/pppd/{_VERSION}/radius.so")]
        if not plugins:
            pytest.skip(f"what is called here is of pppd {_VERSION}")
        self._pppd, self._radius = folder / "pppd.so", folder / "radius.so"
        self._pppd.write_bytes(_as_library((root / "usr/sbin/pppd").read_bytes()))
        # In pppd its own error() has precedence over glibc's; here it has not.
        self._radius.write_bytes(_renamed(plugins[0].read_bytes(), "error", "info"))
        libraries = ":".join(map(str, root.glob("usr/lib/*-linux-*")))
        self._environment = {**os.environ, "LD_LIBRARY_PATH": libraries}

    def words(self, file: Path) -> list[list[str]]:
        """The words of each line of a secrets file, as pppd reads them."""
        read: list[list[str]] = self._ask("words", file)
        return read

    def radius(self, file: Path) -> dict[str, Any]:
        """The RADIUS plugin's reading of its file: the servers with their ports and their secrets, and the
        name of this NAS. Fails if it refuses the file."""
        read: dict[str, Any] = self._ask("radius", file)
        return read

    def attributes(self, dictionary: Path) -> list[str]:
        """The names in a dictionary that the RADIUS plugin knows then. Fails if it refuses the file."""
        read: list[str] = self._ask("attributes", dictionary)
        return read

    def takes_port_map(self, file: Path) -> bool:
        """True if the RADIUS plugin takes the file."""
        taken: bool = self._ask("port map", file)
        return taken

    def _ask(self, what: str, file: Path) -> Any:
        command = [
            sys.executable,
            "-m",
            "tests.system.pppd",
            str(self._pppd),
            str(self._radius),
            what,
            str(file),
        ]
        asked = subprocess.run(
            command,
            cwd=_REPOSITORY,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
        assert asked.returncode == 0, asked.stderr
        return json.loads(asked.stdout)


def _as_library(program: bytes) -> bytes:
    """The bytes without the mark of an executable."""
    made = bytearray(program)
    (headers,) = struct.unpack_from("<Q", made, 32)
    size, count = struct.unpack_from("<HH", made, 54)
    for number in range(count):
        kind, _, start, _, _, length = struct.unpack_from("<IIQQQQ", made, headers + number * size)
        if kind != _PT_DYNAMIC:
            continue
        for place in range(start, start + length, 16):
            tag, value = struct.unpack_from("<QQ", made, place)
            if tag == _DT_FLAGS_1:
                struct.pack_into("<Q", made, place + 8, value & ~_DF_1_PIE)
    return bytes(made)


def _renamed(library: bytes, symbol: str, other: str) -> bytes:
    """The bytes with one undefined symbol replaced by another."""
    made = bytearray(library)
    (headers,) = struct.unpack_from("<Q", made, 40)
    size, count = struct.unpack_from("<HH", made, 58)
    sections = [struct.unpack_from("<IIQQQQII", made, headers + number * size) for number in range(count)]
    symbols = next(section for section in sections if section[1] == _SHT_DYNSYM)
    versions = next(section for section in sections if section[1] == _SHT_VERSYM)[4]
    names = sections[symbols[6]][4]
    places = {}
    for number in range(symbols[5] // 24):
        (offset,) = struct.unpack_from("<I", made, symbols[4] + 24 * number)
        name = made[names + offset : made.index(0, names + offset)].decode()
        places[name] = (symbols[4] + 24 * number, versions + 2 * number)
    (entry, version), (new_entry, new_version) = places[symbol], places[other]
    made[entry : entry + 4] = made[new_entry : new_entry + 4]
    made[version : version + 2] = made[new_version : new_version + 2]
    return bytes(made)


class _Servers(ctypes.Structure):
    _fields_ = [("count", ctypes.c_int), ("names", ctypes.c_char_p * 8), ("ports", ctypes.c_ushort * 8)]


def _words(pppd: ctypes.CDLL, file: bytes) -> list[list[str]]:
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(libc.fopen(file, b"r"))
    word, first, lines = ctypes.create_string_buffer(1024), ctypes.c_int(), []
    while pppd.getword(stream, word, ctypes.byref(first), file):
        if first.value:
            lines.append([])
        lines[-1].append(word.value.decode())
    return lines


def _attributes(radius: ctypes.CDLL, file: bytes) -> list[str]:
    radius.rc_dict_findattr.restype = ctypes.c_void_p
    if radius.rc_read_dictionary(file):
        sys.exit("the plugin refuses the dictionary")
    lines = (line.split() for line in Path(os.fsdecode(file)).read_bytes().splitlines())
    names = [words[1] for words in lines if words[:1] == [b"ATTRIBUTE"]]
    return [name.decode() for name in names if radius.rc_dict_findattr(name)]


def _client(radius: ctypes.CDLL, file: bytes) -> dict[str, Any]:
    radius.rc_conf_str.restype = ctypes.c_char_p
    radius.rc_conf_srv.restype = ctypes.POINTER(_Servers)
    if radius.rc_read_config(file):
        sys.exit("the plugin refuses the file")
    read = {name: radius.rc_conf_srv(name.encode()).contents for name in ("authserver", "acctserver")}
    secrets = []
    for number in range(read["authserver"].count):
        secret, address = ctypes.create_string_buffer(1024), ctypes.c_uint()
        if radius.rc_find_server(read["authserver"].names[number], ctypes.byref(address), secret):
            sys.exit("the plugin finds no secret")
        secrets.append(secret.value.decode())
    return {
        **{
            name: [[held.names[number].decode(), held.ports[number]] for number in range(held.count)]
            for name, held in read.items()
        },
        "nas_identifier": radius.rc_conf_str(b"nas_identifier").decode(),
        "secrets": secrets,
    }


if __name__ == "__main__":
    pppd_library = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL | os.RTLD_LAZY)
    # Its messages.
    ctypes.c_int.in_dll(pppd_library, "log_to_fd").value = 2
    what, argument = sys.argv[3], sys.argv[4].encode()
    plugin = ctypes.CDLL(sys.argv[2], mode=os.RTLD_LAZY)
    said: Any
    match what:
        case "words":
            said = _words(pppd_library, argument)
        case "attributes":
            said = _attributes(plugin, argument)
        case "port map":
            said = plugin.rc_read_mapfile(argument) == 0
        case _:
            said = _client(plugin, argument)
    print(json.dumps(said))
