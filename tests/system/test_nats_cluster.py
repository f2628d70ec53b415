"""The page about a cluster of NATS servers: what it shows works, with three servers."""

import asyncio
import signal
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
import requests

from tests.support.manual import steps
from tests.support.nats import PROGRAM
from tests.support.stack import PATIENCE, free_port, wait_for
from tests.system.test_fleet_history import ADMINISTRATION, part, up
from tests.system.test_fleet_history import PROGRAM as CONSUMER

PAGE = "how-to/nats-cluster.md"
NAMES = ("nats1", "nats2", "nats3")


def show(title: str) -> str:
    """Return the part of a configuration that a section shows."""
    return steps(PAGE, "text")[title]


@dataclass
class Server:
    """A server of the page, on this machine."""

    folder: Path
    port: int
    monitor: int

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            command = [PROGRAM, "--config", self.folder / "nats-server.conf"]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def is_ready(self) -> bool:
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            return requests.get(f"http://127.0.0.1:{self.monitor}/healthz", timeout=PATIENCE).json() == {
                "status": "ok"
            }
        except requests.RequestException:
            return False

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)


class Cluster:
    """The cluster of the page. Its machines are folders, and their names are localhost."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers = [Server(folder / name, free_port(), free_port()) for name in NAMES]
        self.first = self.servers[0].port

    def paste(self, title: str) -> str:
        """Run the lines of a section, and return what they print."""
        lines = steps(PAGE, "bash")[title]
        for text, here in (
            ("python3 fleet_stream.py", f"{sys.executable} {ADMINISTRATION}"),
            ("$server.example.net", "localhost"),
            ("nats1.example.net:4222", f"localhost:{self.first}"),
        ):
            lines = lines.replace(text, here)
        shell = ["bash", "-eu", "-o", "pipefail"]
        ended = subprocess.run(
            shell, input=lines, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def configure(self, keys: dict[str, str]) -> None:
        administrator = "{ nkey: KEY_OF_ADMINISTRATOR }"
        users = steps("explanation/relay.md", "text")["Permissions on the NATS servers"]
        users = users.replace(administrator, f"{administrator}\n{show('Users and permissions')}")
        for name, key in keys.items():
            placeholder = f"KEY_OF_{name.replace('-', '_').upper()}"
            assert users.count(placeholder) == 1
            users = users.replace(placeholder, key)
        routes = [free_port() for _ in NAMES]
        for name, server, route in zip(NAMES, self.servers, routes, strict=True):
            text = show("The servers").replace("server_name: nats1", f"server_name: {name}")
            for there, here in (
                ("0.0.0.0:4222", f"127.0.0.1:{server.port}"),
                ("0.0.0.0:6222", f"127.0.0.1:{route}"),
                ("127.0.0.1:8222", f"127.0.0.1:{server.monitor}"),
                ("/etc/nats/server", str(self.folder / name)),
                ("/etc/nats/ca.pem", str(self.folder / "ca.pem")),
                ("/var/lib/nats", str(server.folder)),
                *(
                    (f"{other}.example.net:6222", f"localhost:{port}")
                    for other, port in zip(NAMES, routes, strict=True)
                ),
            ):
                assert there in text, there
                text = text.replace(there, here)
            server.folder.mkdir()
            (server.folder / "nats-server.conf").write_text(text)
            (server.folder / "nats").mkdir()
            (server.folder / "nats" / "users.conf").write_text(users)

    def start(self) -> None:
        for server in self.servers:
            server.start()
        for server in self.servers:
            wait_for("a server", server.is_ready)

    def use(self, user: str, work: Any, **options: Any) -> Any:
        """Return what `work` returns for a connection of a user."""

        async def run() -> Any:
            connection = await nats.connect(
                [f"tls://localhost:{server.port}" for server in self.servers],
                tls=ssl.create_default_context(cafile=self.folder / "ca.pem"),
                tls_handshake_first=True,
                nkeys_seed_str=(self.folder / f"{user}.nk").read_text(),
                inbox_prefix=f"_INBOX.{user}",
                **options,
            )
            try:
                return await work(connection.jetstream(timeout=PATIENCE))
            finally:
                await connection.close()

        return asyncio.run(run())

    def publish(self, message: Any, user: str = "bng-1", gateway: str = "bng-1") -> None:
        headers = {"Nats-Msg-Id": message.id}
        if message.event:
            headers["Gateway-Event"] = message.event
        subject = f"gw.{gateway}.{message.subject}"

        async def publish(jetstream: Any) -> None:
            async with asyncio.timeout(PATIENCE):
                while True:
                    try:
                        await jetstream.publish(subject, message.body, headers=headers, timeout=2)
                        return
                    except nats.errors.Error:
                        # No leader yet, or no permission.
                        assert user == gateway, "not permitted"

        self.use(user, publish)

    def read_certificate(self) -> str:
        """Return the certificate that the first server presents."""
        return ssl.get_server_certificate(("localhost", self.first))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    cluster.paste("Certificates")
    printed = cluster.paste("Users and permissions")
    cluster.configure(dict(line.split(": ") for line in printed.splitlines()))
    try:
        cluster.start()
        cluster.paste("The stream")
        # The limits can be changed.
        cluster.paste("The stream")
        yield cluster
    finally:
        for server in cluster.servers:
            server.stop()


@pytest.fixture
def database(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """The history that a consumer with the permissions of the page keeps."""
    database = tmp_path / "history.sqlite"
    servers = [word for each in cluster.servers for word in ("--nats", f"tls://localhost:{each.port}")]
    login = ["--ca", str(cluster.folder / "ca.pem"), "--nkey", str(cluster.folder / "history.nk")]
    with (tmp_path / "log").open("wb") as log:
        consumer = subprocess.Popen(
            [sys.executable, CONSUMER, "follow", *servers, *login, "--database", database], stderr=log
        )
    yield database
    consumer.kill()
    consumer.wait(PATIENCE)


def list_ids(database: Path) -> list[int]:
    try:
        with closing(sqlite3.connect(database)) as connection:
            return [id for (id,) in connection.execute("SELECT id FROM session ORDER BY id")]
    except sqlite3.OperationalError:
        return []


def test_the_stream_is_stored_on_three_servers_and_one_after_the_other_can_restart(
    cluster: Cluster, database: Path
) -> None:
    info = cluster.use("administrator", lambda jetstream: jetstream.stream_info("gateways"))
    assert (info.config.num_replicas, info.config.max_age) == (3, 7 * 86_400)
    cluster.publish(part("a-0", []))
    for number, server in enumerate(cluster.servers, 1):
        server.stop()
        cluster.publish(up(number, 1_795_262_400, sequence=number))
        server.start()
        wait_for("the server", server.is_ready)
    wait_for("the history", lambda: list_ids(database) == [1, 2, 3])


def test_a_gateway_cannot_write_the_subjects_of_another(cluster: Cluster) -> None:
    with pytest.raises(AssertionError, match="not permitted"):
        cluster.publish(part("a-0", []), user="bng-2")


def test_a_reload_locks_a_gateway_out_and_closes_its_connection(cluster: Cluster) -> None:
    async def lock_out(jetstream: Any) -> None:
        await jetstream.publish("gw.bng-2.commits", b"{}")
        for server in cluster.servers:
            users = server.folder / "nats" / "users.conf"
            lines = users.read_text().splitlines()
            users.write_text("\n".join(line for line in lines if "gw.bng-2.>" not in line))
            server.process.send_signal(signal.SIGHUP)
        with pytest.raises(nats.errors.Error):
            async with asyncio.timeout(PATIENCE):
                while True:
                    await jetstream.publish("gw.bng-2.commits", b"{}", timeout=2)

    cluster.use("bng-2", lock_out, max_reconnect_attempts=1)
    with pytest.raises(nats.errors.Error):
        cluster.use("bng-2", lock_out, max_reconnect_attempts=1)
    cluster.publish(part("a-0", []))


def test_a_reload_renews_the_certificate(cluster: Cluster, database: Path) -> None:
    # The last test: the CA is new, too, and the clients of the other servers would need the old one.
    before = cluster.read_certificate()
    cluster.paste("Certificates")
    assert cluster.read_certificate() == before
    cluster.servers[0].process.send_signal(signal.SIGHUP)
    wait_for("the new certificate", lambda: cluster.read_certificate() != before)
