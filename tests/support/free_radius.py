"""Real RADIUS servers: FreeRADIUS, each at a loopback address of its own."""

import subprocess
import sys
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

SECRET = "between-us"
#: Seconds between two updates of accounting, as the servers demand; much less than in the field.
INTERIM = 3

_CONFIGURATION = """\
prefix = /usr
localstatedir = {folder}
libdir = /usr/lib/freeradius
logdir = {folder}
raddbdir = {folder}
run_dir = {folder}
log {{
    destination = files
    file = {folder}/log
    auth = yes
}}
security {{
    allow_vulnerable_openssl = yes
}}
thread pool {{
    start_servers = 1
    max_servers = 4
}}
client gateway {{
    ipaddr = 127.0.0.0/8
    secret = {secret}
}}
modules {{
    pap {{ }}
    chap {{ }}
    mschap {{ }}
    files {{ usersfile = {folder}/users }}
    detail {{ filename = {folder}/detail }}
}}
server gateway {{
    listen {{
        type = auth
        ipaddr = {address}
        port = 1812
    }}
    listen {{
        type = acct
        ipaddr = {address}
        port = 1813
    }}
    authorize {{
        files
        chap
        mschap
        pap
    }}
    authenticate {{
        Auth-Type PAP {{
            pap
        }}
        Auth-Type CHAP {{
            chap
        }}
        Auth-Type MS-CHAP {{
            mschap
        }}
    }}
    accounting {{
        detail
    }}
}}
"""

#: Subscribers of PPPoE have a password, those of DHCP are known by their VLAN.
_USERS = f"""\
DEFAULT User-Name =~ "^trunk0", Auth-Type := Accept
    Acct-Interim-Interval = {INTERIM}

DEFAULT Cleartext-Password := "secret"
    Service-Type = Framed-User,
    Framed-Protocol = PPP,
    Acct-Interim-Interval = {INTERIM}
"""


class FreeRadius:
    """A RADIUS server at a loopback address, which runs from its creation on."""

    def __init__(self, address: IPv4Address, folder: Path) -> None:
        self.address = address
        self._folder = folder
        folder.mkdir()
        text = _CONFIGURATION.format(folder=folder, address=address, secret=SECRET)
        (folder / "radiusd.conf").write_text(text)
        (folder / "users").write_text(_USERS)
        (folder / "dictionary").write_text("")
        self.start()

    def start(self) -> None:
        # A former start was ready too.
        (self._folder / "log").unlink(missing_ok=True)
        command = ["freeradius", "-f", "-d", str(self._folder)]
        self._process = subprocess.Popen(command, stdout=sys.stderr)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def accounted(self, status: str, user: str) -> int:
        """Return the number of records of a user with this `Acct-Status-Type`."""
        detail = self._folder / "detail"
        records = detail.read_text().split("\n\n") if detail.exists() else []
        wanted = (f'User-Name = "{user}"', f"Acct-Status-Type = {status}")
        return sum(all(line in record for line in wanted) for record in records)

    def heard(self) -> str:
        """Return all accounting records."""
        return (self._folder / "detail").read_text()

    def is_ready(self) -> bool:
        log = self._folder / "log"
        return log.exists() and "Ready to process" in log.read_text()


def section_of(*servers: FreeRadius, **values: Any) -> dict[str, Any]:
    """Return the section `radius` of a configuration that has these servers."""
    first, *further = (str(server.address) for server in servers)
    return {
        "server": first,
        "secret": SECRET,
        "servers": [{"address": address, "secret": SECRET} for address in further],
        **values,
    }
