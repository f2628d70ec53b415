"""The FreeRADIUS example of docs/reference/radius.md, with the other files of Debian's package: attributes
of the replies, and the rates that the core reads from them."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_core.gateways.linux.daemons.accel_command_line import COLUMNS, parse_sessions
from tests.support.accel import Peer, table
from tests.support.documents import valid_document
from tests.support.manual import DOCS
from tests.support.namespaces import ip, network_namespace
from tests.support.rendered import rendered
from tests.support.stack import wait_for

PAGE = (DOCS / "reference" / "radius.md").read_text()
#: The texts of the example, by the file of Debian's FreeRADIUS that gets them.
FILES = dict(re.findall(r"^:caption: /etc/freeradius/3\.0/(\S+)\n\n(.*?)^```", PAGE, re.M | re.S))
SETTINGS = json.loads(re.findall(r"config set radius - <<< '(.*)'", PAGE)[0])
GATEWAY = "10.255.0.1"

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("freeradius") and shutil.which("radclient")),
    reason="needs root, freeradius and radclient",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a running server, in a network of its own with the addresses of the page."""
    folder = tmp_path_factory.mktemp("radius")
    # Debian's files belong to another user, and have links to each other.
    subprocess.run(["cp", "-r", "/etc/freeradius/3.0/.", folder], check=True)
    with (folder / "clients.conf").open("a") as clients:
        clients.write(FILES["clients.conf"])
    (folder / "mods-config/files/authorize").write_text(FILES["mods-config/files/authorize"])
    main = folder / "radiusd.conf"
    # Nothing of the machine's own server is touched: its logs, its process id, its user.
    text = re.sub(r"(?m)^(logdir|localstatedir) = .*", rf"\1 = {folder}", main.read_text())
    main.write_text(re.sub(r"(?m)^\t(user|group) = .*", "", text))
    (folder / "run/freeradius").mkdir(parents=True)
    with network_namespace():
        for address in (SETTINGS["server"], GATEWAY):
            ip(f"address add {address}/32 dev lo")
        log = folder / "log"
        process = subprocess.Popen(["freeradius", "-f", "-d", str(folder), "-l", str(log)])
        try:
            wait_for("the server", lambda: log.exists() and "Ready to process" in log.read_text())
            yield folder
        finally:
            process.kill()
            process.wait()


def request(kind: str, **attributes: str) -> dict[str, str]:
    """Send a request from the gateway of the page. Return the attributes of the reply, with its code as
    `code`."""
    lines = {**attributes, "Packet-Src-IP-Address": GATEWAY}
    ended = subprocess.run(
        ["radclient", "-x", "-t", "20", "-r", "3", SETTINGS["server"], kind, SETTINGS["secret"]],
        input="".join(f"{name.replace('_', '-')} = {value}\n" for name, value in lines.items()),
        capture_output=True,
        text=True,
        check=False,
    )
    _, code, reply = re.split(r"(?m)^Received (\S+) Id .*$", ended.stdout)
    return {"code": code, **{name: text.strip('"') for name, text in re.findall(r"\t(\S+) = (.*)", reply)}}


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("user", "password", "rates"),
    [
        ("alice", "secret-1", (20_000_000, 5_000_000)),
        ("bob", "secret-2", (50_000_000, 10_000_000)),
        ("trunk0.110", "trunk0.110", (15_000_000, 3_000_000)),
    ],
)
@pytest.mark.parametrize("method", ["User-Password", "CHAP-Password"])
def test_a_subscriber_of_the_page_signs_on_with_its_rates(
    user: str, password: str, rates: tuple[int, int], method: str
) -> None:
    reply = request("auth", User_Name=user, **{method: password})
    assert reply["code"] == "Access-Accept"
    assert reply["Acct-Interim-Interval"] == "300"
    # accel-ppp shows the attribute as the rates of the session.
    row = Peer("78fa5e68dbcd44c8", rate=reply["Filter-Id"]).row(COLUMNS, age=5)
    (session,) = parse_sessions(table(list(COLUMNS), [row]), 1_795_271_513)
    assert (session.rate_down, session.rate_up) == rates


@pytest.mark.usefixtures("server")
def test_the_addresses_of_the_page_arrive_and_a_wrong_password_is_rejected() -> None:
    reply = request("auth", User_Name="alice", User_Password="secret-1")
    assert reply["Framed-IP-Address"] == "100.64.0.10"
    assert reply["Framed-IPv6-Prefix"] == "2001:db8:0:6::/64"
    assert reply["Delegated-IPv6-Prefix"] == "2001:db8:8000:600::/56"
    assert request("auth", User_Name="bob", User_Password="secret-2")["Framed-Pool"] == "public"
    assert request("auth", User_Name="alice", User_Password="wrong")["code"] == "Access-Reject"


def test_the_accounting_is_in_the_folder_that_the_page_names(server: Path) -> None:
    reply = request("acct", User_Name="alice", Acct_Status_Type="Start", Acct_Session_Id="78fa5e68dbcd44c8")
    assert reply == {"code": "Accounting-Response"}
    (record,) = (server / "radacct" / GATEWAY).iterdir()
    assert 'Acct-Session-Id = "78fa5e68dbcd44c8"' in record.read_text()


def test_the_core_leaves_the_attribute_of_the_rates_to_accel_ppp() -> None:
    shaper = rendered({**valid_document(), "radius": SETTINGS})["accel-ppp.conf"].partition("[shaper]")[2]
    assert not re.search(r"(?m)^(attr|vendor)", shaper.partition("\n[")[0])
