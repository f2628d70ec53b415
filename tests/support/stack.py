"""A running gateway: the processes of `make run`, on a free port and in their own folder."""

import json
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import bcrypt
import requests

from gateway_api.auth.ledger import open_ledger, read_name
from gateway_api.auth.tokens import Tokens
from gateway_api.cli.run import RunFolder
from gateway_contract.core.interface import CORE
from gateway_contract.core_client import CoreClient
from gateway_contract.varlink.client import Client

#: Seconds that are enough even on a busy machine.
PATIENCE = float(os.environ.get("PATIENCE", "150"))
#: Not the generator of the tests, which some tests seed.
_chance = random.SystemRandom()


def free_port() -> int:
    """Return a port without a listener, outside the range for outgoing connections: one of them might take
    it before the bind. Never 10080, which browsers refuse."""
    while True:
        port = _chance.randrange(10_081, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def wait_for(what: str, ready: Any, timeout: float = PATIENCE) -> Any:
    """Return the first true value of `ready()`. Fails the test with `what` if none comes in time; no
    timeout is less than PATIENCE. A test that requires less measures it."""
    timeout = max(timeout, PATIENCE)
    deadline = time.monotonic() + timeout
    while not (value := ready()):
        assert time.monotonic() < deadline, f"waited {timeout:g} s for {what}"
        time.sleep(0.02)
    return value


class Api:
    """The API as a client sees it. Paths are relative to `/api/v1`, unless they are `/metrics`."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.url = environment["GATEWAY_URL"]
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.verify = environment["GATEWAY_CA"]
        self._tokens: dict[str, str] = {}

    def send(
        self, method: str, path: str, role: str | None = "admin", token: str | None = None, **more: Any
    ) -> requests.Response:
        """Send a request. `role` is admin, operator or None for no token."""
        headers = dict(more.pop("headers", {}))
        if token or role:
            headers["Authorization"] = f"Bearer {token or self.token(str(role))}"
        url = self.url + (path if path == "/metrics" else f"/api/v1{path}")
        return self.session.request(method, url, headers=headers, timeout=PATIENCE, **more)

    def get(self, path: str, role: str | None = "operator", **more: Any) -> Any:
        """Return the data of a GET that must succeed."""
        answer = self.send("GET", path, role, **more)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        assert answer.json()["status"] == "ok"
        return answer.json()["data"]

    def log_in(self, username: str, password: str) -> requests.Response:
        body = {"username": username, "password": password}
        return self.send("POST", "/auth/login", None, json=body)

    def token(self, role: str) -> str:
        if role not in self._tokens:
            self._tokens[role] = self.new_token(role)
        return self._tokens[role]

    def new_token(self, role: str) -> str:
        name = role.upper()
        answer = self.log_in(self.environment[f"{name}_USER"], self.environment[f"{name}_PASSWORD"])
        assert answer.status_code == 200, answer.text
        token: str = answer.json()["access_token"]
        return token

    def forget_tokens(self) -> None:
        """Forget all tokens, so that the next requests log in again."""
        self._tokens.clear()


def read_environment(path: Path) -> dict[str, str]:
    """Return the shell assignments in a file."""
    words = shlex.split(path.read_text())
    return dict(word.split("=", 1) for word in words)


#: The bcrypt cost of passwords where no test needs their time: the lowest, as a run logs in a thousand times.
_COST = 4


def make_state(folder: Path, cost: int = _COST) -> None:
    """Make a folder of `make run` with what a first run takes long for: hashes of passwords, a key and its
    certificate."""
    shutil.copytree(_first_run(cost)[0], folder, dirs_exist_ok=True)


@cache
def _first_run(cost: int) -> tuple[Path, object]:
    """Return such a folder, and the objects that keep it there."""
    folder = TemporaryDirectory()
    made = RunFolder(Path(folder.name))
    made.prepare()
    factory = json.loads(made.factory.read_text())
    for user in factory["api"]["users"]:
        password = made.passwords[user["username"]].encode()
        user["password_hash"] = bcrypt.hashpw(password, bcrypt.gensalt(cost)).decode()
    made.factory.write_text(json.dumps(factory))
    # Each stack has tokens of its own.
    (made.folder / "secret").unlink()
    return made.folder, (folder, made)


@contextmanager
def running_stack(
    state: Path,
    sessions: int = 200,
    arrivals: float = 0,
    wrap: tuple[str, ...] = (),
    cost: int = _COST,
    **more: Any,
) -> Iterator[tuple[Api, "subprocess.Popen[bytes]"]]:
    """Run core and API as in `make run`, with certificate and passwords of the first one, until the end of
    the block. `wrap` is a command that starts them, `cost` the bcrypt cost of the passwords."""
    environment = {
        **os.environ,
        "PORT": str(free_port()),
        "STATE": str(state),
        "SESSIONS": str(sessions),
        "ARRIVALS": str(arrivals),
        **{key: str(value) for key, value in more.items()},
    }
    state.mkdir(parents=True, exist_ok=True)
    if not any(state.iterdir()):
        make_state(state, cost)
    with (state / "log").open("ab") as log:
        process = subprocess.Popen(
            [*wrap, sys.executable, "-m", "gateway_api.cli.run"],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        published = state / "environment"

        def ready() -> bool:
            assert process.poll() is None, (state / "log").read_text()
            return published.exists()

        wait_for("the stack to answer", ready)
        yield Api(read_environment(published)), process
    finally:
        stop(process)


def call_core(socket_path: Path, method: str, **parameters: Any) -> Any:
    """Return the reply of the core at a socket, to a client other than the API. Raises ErrorReply."""
    with closing(Client(socket_path, timeout=PATIENCE)) as client:
        return json.loads(bytes(client.call(f"{CORE.name}.{method}", parameters)))


def issued(state: Path, username: str, lifetime: int, clock: Callable[[], float] = time.time) -> str:
    """Return a token like those of a running stack, with any start and lifetime in seconds."""
    client = Client(state / "core.sock", timeout=10)
    user = CoreClient(client).check_access([username]).user(username)
    client.close()
    assert user is not None
    secret = (state / "secret").read_bytes()
    with closing(open_ledger(state / "logins.sqlite")) as ledger:
        tokens = Tokens(secret, partial(read_name, ledger), clock)
        return tokens.issue(username, user.role, user.generation, lifetime)


def stop(process: "subprocess.Popen[bytes]", timeout: float = PATIENCE) -> float:
    """Stop a process as Ctrl-C does, and return the seconds until its end."""
    began = time.monotonic()
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout)
        finally:
            process.kill()
    return time.monotonic() - began


def children(pid: int) -> list[int]:
    """Return the process ids of a process's children."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def descendants(pid: int) -> list[int]:
    """Return the process ids of a process's descendants."""
    parent_of = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # State and parent follow the name, which may contain anything: proc(5).
            parent_of[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, new = [], [pid]
    while new:
        new = [child for child, parent in parent_of.items() if parent in new]
        found += new
    return found


def core_of(process: "subprocess.Popen[bytes]") -> int:
    """Return the process id of the core daemon of a stack."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(process.pid)}
    (core,) = (pid for pid, command in commands.items() if b"gateway_core" in command)
    return core


@contextmanager
def running_api(
    core_socket: Path,
    state: Path,
    workers: int = 2,
    group: str | None = None,
    tls: bool = True,
    configuration: str = "python:gateway_api.serving.users",
    **settings: str,
) -> Iterator[str]:
    """Run gunicorn alone, with any core at `core_socket`, and yield its base URL. `state` is the folder of
    a former stack, which has the certificate. `group` is its own group. `configuration` is that of
    gunicorn. `settings` are further environment variables."""
    port = free_port()
    # Its own runtime folder: the stack may still run, with a hub in its folder.
    runtime = state / "alone"
    runtime.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "GATEWAY_CORE_SOCKET": str(core_socket),
        "GATEWAY_API_RUNTIME": str(runtime),
        # Shared, so that a token of the stack is valid here.
        "GATEWAY_API_STATE": str(state),
        "GATEWAY_API_AUDIT": str(runtime / "audit"),
        "GATEWAY_API_BIND": f"127.0.0.1:{port}",
        "GATEWAY_API_CERTIFICATE": str(state / "certificate.pem"),
        "GATEWAY_API_KEY": str(state / "key.pem"),
        "GATEWAY_API_WORKERS": str(workers),
        "SVC_API_SECRET": (state / "secret").read_text(),
        **settings,
    }
    gunicorn = str(Path(sys.executable).parent / "gunicorn")
    command = [gunicorn, "--config", configuration]
    if not tls:
        # gunicorn's own options outdo the configuration.
        command += ["--certfile", "", "--keyfile", ""]
    url = f"{'https://localhost' if tls else 'http://127.0.0.1'}:{port}"
    with (state / "api.log").open("ab") as log:
        process = subprocess.Popen(
            command, env=environment, group=group, stdout=log, stderr=subprocess.STDOUT
        )

    def answers() -> bool:
        assert process.poll() is None, (state / "api.log").read_text()
        try:
            session = requests.Session()
            session.trust_env = False
            version = f"{url}/api/v1/system/version"
            return session.get(version, verify=state / "certificate.pem", timeout=PATIENCE).ok
        except requests.ConnectionError:
            return False

    try:
        try:
            wait_for("the API to answer", answers)
        except AssertionError as error:
            error.add_note((state / "api.log").read_text())
            raise
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE)


def listens(path: Path) -> bool:
    """Return True if a process listens at a Unix socket: a killed process leaves its file."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@contextmanager
def running_core(
    socket_path: Path, factory: Path, *arguments: str, module: str = "gateway_core"
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the embedded core alone, until the end of the block. Its configuration is in a folder beside the
    socket, and begins as `factory`. `module` is the program."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", module, "lab", "--socket", str(socket_path)),
            *("--configuration", str(socket_path.parent / "configuration")),
            *("--factory", str(factory), *arguments),
        ]
    )
    try:

        def ready() -> bool:
            assert process.poll() is None
            return listens(socket_path)

        wait_for("the core's socket", ready)
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(PATIENCE)
