"""FRR from Debian's packages, not installed: its parser, and its daemons for a moment."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.debian import unpacked

_TIMEOUT = 60

#: Prints the running configuration after FRR has read a file as at a start. Arguments: the folder of the
#: packages, and the file. The user, group and PAM service of FRR, and the folder of its sockets, exist only
#: in the namespace.
_READ_BACK = """
set -eu
root=$1; file=$2
mount -t tmpfs -o mode=0755 none /run
mkdir -m 0777 /run/frr
{ cat /etc/group; echo frrvty:x:985:root,frr; } > /run/group
{ cat /etc/passwd; echo frr:x:985:985::/:/bin/false; } > /run/passwd
cp -r /etc/pam.d /run/pam.d
printf 'auth sufficient pam_permit.so\\naccount sufficient pam_permit.so\\n' > /run/pam.d/frr
for name in group passwd pam.d; do mount --bind "/run/$name" "/etc/$name"; done
ip link set lo up
touch /run/frr/vtysh.conf
# A daemon reads the hostname only from its own file.
grep '^hostname ' "$file" > /run/frr/zebra.conf || true
for daemon in zebra staticd bgpd; do
    "$root/usr/lib/frr/$daemon" -u frr -g frrvty --vty_socket /run/frr -z /run/frr/zserv.api -P 0 \\
        -i "/run/frr/$daemon.pid" -f "/run/frr/$daemon.conf" --log stdout > "/run/$daemon.log" 2>&1 &
done
for daemon in zebra staticd bgpd; do
    until [ -S "/run/frr/$daemon.vty" ]; do
        sleep 0.05
        [ "$(jobs -r | wc -l)" = 3 ] || { cat /run/*.log >&2; exit 1; }
    done
done
vtysh() { "$root/usr/bin/vtysh" --config_dir /run/frr --vty_socket /run/frr "$@"; }
vtysh --inputfile "$file" >&2
vtysh -c 'show running-config'
"""


class Frr:
    """Debian's packages of FRR, unpacked into a folder."""

    def __init__(self, folder: Path) -> None:
        self.root = unpacked(folder, _packages)
        libraries = [*self.root.glob("usr/lib/*/frr"), *self.root.glob("usr/lib/*-linux-*")]
        libraries += self.root.glob("lib/*-linux-*")
        self.environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, libraries))}
        (folder / "configuration").mkdir()
        (folder / "configuration" / "vtysh.conf").touch()
        (folder / "bin").mkdir()
        wrapper = folder / "bin" / "vtysh"
        wrapper.write_text(
            "#!/bin/sh\n"
            f"export LD_LIBRARY_PATH='{self.environment['LD_LIBRARY_PATH']}'\n"
            f"exec '{self.root}/usr/bin/vtysh' --config_dir '{folder}/configuration' \"$@\"\n"
        )
        wrapper.chmod(0o755)
        #: A folder for PATH in which vtysh is FRR's own.
        self.path = str(folder / "bin")
        #: The folder of frr-reload.py.
        self.tools = self.root / "usr" / "lib" / "frr"

    def read_back(self, file: Path) -> list[str]:
        """Return the running configuration of zebra, staticd and bgpd after they have read the file, in
        namespaces of their own."""
        if os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("ip")):
            pytest.skip("needs root, unshare and ip to have a network of its own")
        command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
        command += ["bash", "-c", _READ_BACK, "bash", str(self.root), str(file)]
        said = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
        assert said.returncode == 0, said.stderr
        return said.stdout.splitlines()


def _packages() -> Iterator[str]:
    """Return the packages of FRR, of its tools, and of its missing libraries."""
    listed = subprocess.run(
        ["apt-cache", "depends", "--no-recommends", "--no-suggests", "frr"],
        env={**os.environ, "LC_ALL": "C"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    yield from ("frr", "frr-pythontools")
    for line in listed.stdout.splitlines():
        kind, _, name = line.strip().lstrip("|").partition(": ")
        if kind == "Depends" and name.startswith("lib"):
            query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", name]
            if subprocess.run(query, capture_output=True, text=True, check=False).stdout != "installed":
                yield name
