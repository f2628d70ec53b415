"""Real NATS servers with JetStream, at free ports of 127.0.0.1: one, or a cluster of three."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import nats
import nkeys
import requests
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, StreamConfig

from tests.support.stack import PATIENCE, free_port, wait_for

T = TypeVar("T")

PROGRAM = Path(sys.executable).with_name("nats-server")
STREAM = "gateways"
_CONFIGURATION = """
server_name: {name}
listen: "127.0.0.1:{port}"
http: "127.0.0.1:{monitor}"
jetstream {{ store_dir: "{folder}/jetstream", sync_interval: {sync} }}
"""
#: A client knows the servers that it was told of, and no others.
_CLUSTER = """
cluster {{ name: tests, listen: "127.0.0.1:{cluster}", routes: [{routes}], no_advertise: true }}
"""


class StoredMessage(NamedTuple):
    """Message in a stream. `data` is the parsed body."""

    subject: str
    headers: dict[str, str]
    data: Any


@dataclass
class NatsServer:
    """A server. `more` is further text of its configuration: authorization, TLS, a cluster. `login` is what
    the tests' own connections need, as arguments of `nats.connect`."""

    folder: Path
    name: str = "n1"
    more: str = ""
    login: dict[str, Any] = field(default_factory=dict)
    scheme: str = "nats"
    sync_interval: str = "always"

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port, self._monitor = free_port(), free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def start(self, *, is_ready: bool = True) -> None:
        """Start the server. With `is_ready`, wait until JetStream serves requests; a server of a cluster
        does this only when a second one runs."""
        text = _CONFIGURATION.format(
            name=self.name,
            port=self.port,
            monitor=self._monitor,
            folder=self.folder,
            sync=self.sync_interval,
        )
        (self.folder / "nats.conf").write_text(text + self.more)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "--config", self.folder / "nats.conf"], stdout=log, stderr=log
            )
        if is_ready:
            wait_for(f"the NATS server {self.name}", self.is_ready)

    def is_ready(self) -> bool:
        """Return True if JetStream serves requests."""
        assert self.process is not None
        assert self.process.poll() is None, self.log
        has_leader = "cluster {" not in self.more or self.ask("/jsz").get("meta_cluster", {}).get("leader")
        return bool(has_leader) and self.ask("/healthz").get("status") == "ok"

    def ask(self, path: str) -> Any:
        """Return the document at a path of the server's monitoring, or {} without a response."""
        try:
            with requests.Session() as session:
                session.trust_env = False
                return session.get(f"http://127.0.0.1:{self._monitor}{path}", timeout=PATIENCE).json()
        except (requests.RequestException, json.JSONDecodeError):
            return {}

    def signal(self, number: signal.Signals) -> None:
        """Send a signal: SIGSTOP and SIGCONT pause the server, and SIGHUP makes it read its files."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the server, also one that is stopped."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE)
            self.process = None

    def stop(self) -> None:
        """Stop the server as systemd does."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.process = None

    def use(self, work: Callable[[JetStreamContext], Awaitable[T]]) -> T:
        """Return what `work` returns for a connection of the tests."""
        return use_jetstream([self.url], work, **self.login)

    def add_stream(self, **options: Any) -> None:
        """Create the stream of the gateways. `options` are further fields of StreamConfig."""
        self.use(lambda jetstream: jetstream.add_stream(make_stream(**options)))

    def list_messages(self, subject: str = "gw.>") -> list[StoredMessage]:
        """Return the messages of the stream of the gateways, in their order."""
        return self.use(lambda jetstream: list_messages(jetstream, subject))


def make_seed(prefix: int = nkeys.PREFIX_BYTE_USER) -> str:
    """Create the seed of an NKey, by default of a user."""
    return str(nkeys.encode_seed(os.urandom(32), prefix).decode())


def find_public_key(seed: str) -> str:
    return str(nkeys.from_seed(bytearray(seed.encode())).public_key.decode())


def make_jwt_users(*users: dict[str, Any]) -> tuple[str, list[str]]:
    """Create an operator, and an account with users that have these claims; `exp` is the end of a JWT in
    epoch seconds. Return the configuration of a server, and the content of the users' credentials files."""
    operator, account, system = map(make_seed, (nkeys.PREFIX_BYTE_OPERATOR, *2 * [nkeys.PREFIX_BYTE_ACCOUNT]))
    names = ("subs", "data", "payload", "imports", "exports", "conn", "leaf", "mem_storage", "disk_storage")
    limits = {**dict.fromkeys((*names, "streams", "consumer"), -1), "wildcards": True}
    accounts = {
        find_public_key(seed): _make_jwt(operator, find_public_key(seed), type="account", limits=more)
        for seed, more in ((account, limits), (system, {}))
    }
    preloaded = " ".join(f"{key}: {jwt}\n" for key, jwt in accounts.items())
    configuration = (
        f"operator: {_make_jwt(operator, find_public_key(operator), type='operator')}\n"
        f"system_account: {find_public_key(system)}\n"
        f"resolver: MEMORY\nresolver_preload: {{\n{preloaded}}}\n"
    )
    files = []
    for claims in users:
        seed = make_seed()
        free = {"subs": -1, "data": -1, "payload": -1}
        jwt = _make_jwt(account, find_public_key(seed), type="user", **free, **claims)
        files.append(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    return configuration, files


def _make_jwt(issuer: str, subject: str, exp: int = 0, **claims: Any) -> str:
    """Create a JWT in the format of NATS: https://docs.nats.io/running-a-nats-service/nats_admin/security/jwt."""
    key = nkeys.from_seed(bytearray(issuer.encode()))
    payload = {
        "jti": subject,
        "iat": 0,
        "iss": key.public_key.decode(),
        "sub": subject,
        "name": subject,
        **({"exp": exp} if exp else {}),
        "nats": {"version": 2, **claims},
    }
    parts = ({"typ": "JWT", "alg": "ed25519-nkey"}, payload)
    text = ".".join(_encode(json.dumps(part).encode()) for part in parts)
    return f"{text}.{_encode(key.sign(text.encode()))}"


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def make_stream(**options: Any) -> StreamConfig:
    """Create the configuration of the stream of the gateways."""
    settings = {"name": STREAM, "subjects": ["gw.>"], "discard": DiscardPolicy.NEW, "duplicate_window": 120}
    return StreamConfig(**settings | options)  # type: ignore[arg-type]


def use_jetstream(urls: Sequence[str], work: Callable[[JetStreamContext], Awaitable[T]], **login: Any) -> T:
    """Connect to one of the servers, and return what `work` returns. After a timeout, call `work` again."""

    async def run() -> T:
        connection = await nats.connect(list(urls), **{"connect_timeout": 10, **login})
        end = time.monotonic() + PATIENCE
        try:
            while True:
                try:
                    return await work(connection.jetstream(timeout=10))
                except nats.errors.TimeoutError:
                    # A cluster that elects a leader drops requests.
                    if time.monotonic() > end:
                        raise
        finally:
            await connection.close()

    return asyncio.run(run())


async def list_messages(jetstream: JetStreamContext, subject: str = "gw.>") -> list[StoredMessage]:
    """Return the messages of the stream of the gateways, in their order."""
    subscription = await jetstream.pull_subscribe(subject, stream=STREAM)
    count = (await subscription.consumer_info()).num_pending or 0
    messages: list[Msg] = []
    while len(messages) < count:
        messages += await subscription.fetch(min(500, count - len(messages)), timeout=PATIENCE)
    await subscription.unsubscribe()
    return [StoredMessage(each.subject, each.headers or {}, json.loads(each.data)) for each in messages]


@contextmanager
def running_nats(
    folder: Path, more: str = "", login: dict[str, Any] | None = None, scheme: str = "nats"
) -> Iterator[NatsServer]:
    """Run one server with JetStream until the end of the block."""
    server = NatsServer(folder, more=more, login=login or {}, scheme=scheme)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@contextmanager
def running_cluster(
    folder: Path, more: str = "", login: dict[str, Any] | None = None, count: int = 3
) -> Iterator[list[NatsServer]]:
    """Run a cluster of servers with JetStream until the end of the block."""
    names = [f"n{number + 1}" for number in range(count)]
    ports = [free_port() for _ in names]
    routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in ports)
    servers = [
        NatsServer(folder / name, name, _CLUSTER.format(cluster=port, routes=routes) + more, login or {})
        for name, port in zip(names, ports, strict=True)
    ]
    with ExitStack() as stack:
        for server in servers:
            stack.callback(server.kill)
            server.start(is_ready=False)
        for server in servers:
            wait_for(f"the NATS server {server.name}", server.is_ready)
        yield servers
