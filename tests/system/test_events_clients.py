"""The event stream as clients that others wrote see it, each with the habits of its own.

What isn't there is installed: Debian's chromium (dozens packages), nodejs and its node-eventsource (23; its
npm would be 408). The newest eventsource is tried where there is an npm to get it with.
"""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.npm import installed
from tests.support.sse import PATH, Stream, wait_for_workers, workers_of
from tests.support.stack import Api, running_stack, wait_for

pytestmark = pytest.mark.slow

#: What an event source takes the name of an event from is of either; "message" is of one that has none.
NAMES = ("session_up", "session_down", "gap", "message")

NODE_CLIENTS = {
    "eventsource 2": """
        const EventSource = require('eventsource');
        const open = (url, token) => new EventSource(url, {headers: {Authorization: 'Bearer ' + token}});
    """,
    "eventsource 3": """
        const {EventSource} = require('eventsource');
        const open = (url, token) => new EventSource(url, {fetch: (input, init) => fetch(input,
            {...init, headers: {...init.headers, Authorization: 'Bearer ' + token}})});
    """,
}
NODE_LISTENS = """
    const [url, token, names] = process.argv.slice(-3);
    const source = open(url, token);
    for (const name of names.split(','))
        source.addEventListener(name, event => process.stdout.write(JSON.stringify(
            {id: event.lastEventId, name: name, data: JSON.parse(event.data)}) + '\\n'));
    source.onopen = () => process.stdout.write('"open"\\n');
"""
PAGE = """<!doctype html><title>Events</title><script>
    const seen = [];
    let sending = false, again = false;
    async function send() {
        again = true;
        if (sending) return;
        for (sending = true; again;) {
            again = false;
            await fetch('/seen', {method: 'POST', body: JSON.stringify(seen)});
        }
        sending = false;
    }
    const source = new EventSource('/events');
    for (const name of NAMES)
        source.addEventListener(name, event => {
            seen.push({id: event.lastEventId, name: name, data: JSON.parse(event.data)});
            send();
        });
    source.onopen = () => { seen.push('open'); send(); };
</script>"""

CLIENTS = ["httpx-sse", "sseclient-py", *NODE_CLIENTS, "chromium"]


class Seen(NamedTuple):
    """A message as a client had it."""

    id: str
    name: str
    data: dict[str, Any]

    @property
    def sequence(self) -> int:
        return int(self.id.rpartition("-")[2])


class Client:
    """A client that runs. `lines` gives all that it has said: messages, and "open" at each connection."""

    def __init__(self, lines: Callable[[], list[Any]]) -> None:
        self._lines = lines

    @property
    def messages(self) -> list[Seen]:
        return [Seen(**line) for line in self._lines() if line != "open"]

    @property
    def opened(self) -> int:
        return self._lines().count("open")


# Clients in Python: they are to be run as processes, and come back in a loop of their own


def run_httpx_sse(url: str, token: str, certificate: str) -> None:
    import ssl

    import httpx
    import httpx_sse

    last_id = ""
    context = ssl.create_default_context(cafile=certificate)
    with httpx.Client(verify=context, trust_env=False, timeout=60) as client:
        while True:
            headers = {"Authorization": f"Bearer {token}", "Last-Event-ID": last_id}
            with (
                suppress(httpx.TransportError),
                httpx_sse.connect_sse(client, "GET", url, headers=headers) as source,
            ):
                _say("open")
                for event in source.iter_sse():
                    last_id = event.id
                    _say({"id": event.id, "name": event.event, "data": event.json()})
            time.sleep(0.2)


def run_sseclient(url: str, token: str, certificate: str) -> None:
    import requests
    import sseclient

    last_id = ""
    while True:
        headers = {"Authorization": f"Bearer {token}", "Last-Event-ID": last_id}
        with (
            suppress(requests.RequestException),
            requests.get(url, headers=headers, verify=certificate, stream=True, timeout=60) as answer,
        ):
            _say("open")
            for event in sseclient.SSEClient(answer).events():
                last_id = event.id
                _say({"id": event.id, "name": event.event, "data": json.loads(event.data)})
        time.sleep(0.2)


def _say(line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


RUNNERS = {"httpx-sse": run_httpx_sse, "sseclient-py": run_sseclient}


# Starting them


@contextmanager
def running(command: list[str], folder: Path, **environment: str) -> Iterator[Client]:
    """A client that is a process, and writes a line of JSON for all that it sees."""
    said = folder / "said"
    with said.open("wb") as output, (folder / "errors").open("wb") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, env={**os.environ, **environment})
    try:
        yield Client(lambda: [json.loads(line) for line in said.read_text().split("\n")[:-1]])
    finally:
        process.kill()
        process.wait()


@contextmanager
def python_client(name: str, api: Api, folder: Path) -> Iterator[Client]:
    function = RUNNERS[name].__name__
    code = f"import sys; from tests.contract.test_events_clients import {function} as run; run(*sys.argv[1:])"
    given = [api.url + PATH, api.token("operator"), api.environment["GATEWAY_CA"]]
    with running([sys.executable, "-c", code, *given], folder) as client:
        yield client


@contextmanager
def node_client(name: str, api: Api, folder: Path, modules: Path) -> Iterator[Client]:
    script = folder / "client.cjs"
    script.write_text(NODE_CLIENTS[name] + NODE_LISTENS)
    command = ["node", str(script), api.url + PATH, api.token("operator"), ",".join(NAMES)]
    certificate = api.environment["GATEWAY_CA"]
    with running(command, folder, NODE_PATH=str(modules), NODE_EXTRA_CA_CERTS=certificate) as client:
        yield client


class PageServer(http.server.ThreadingHTTPServer):
    """Serves a page, and to it the stream: a browser's event source can't send a token."""

    daemon_threads = True

    def __init__(self, api: Api) -> None:
        super().__init__(("127.0.0.1", 0), PageHandler)
        self.api = api
        self.token = api.token("operator")
        self.seen: list[Any] = []
        #: The Last-Event-ID of each connection, in their order.
        self.asked: list[str | None] = []


class PageHandler(http.server.BaseHTTPRequestHandler):
    server: PageServer

    def do_GET(self) -> None:
        if self.path == "/events":
            with suppress(OSError, HTTPException):
                self._pass_through()
            return
        body = PAGE.replace("NAMES", json.dumps(NAMES)).encode() if self.path == "/" else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.server.seen = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

    def _pass_through(self) -> None:
        last_id = self.headers["Last-Event-ID"]
        self.server.asked.append(last_id)
        headers = {"Last-Event-ID": last_id} if last_id else {}
        api = self.server.api
        # The cut of the other side ends the page's connection, as a proxy's would.
        with Stream(
            api.url, api.environment["GATEWAY_CA"], self.server.token, "", headers, timeout=60
        ) as stream:
            self.send_response(stream.status)
            self.send_header("Content-Type", stream.headers["Content-Type"])
            self.end_headers()
            while piece := stream.read():
                self.wfile.write(piece)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def chromium(api: Api, folder: Path) -> Iterator[Client]:
    with PageServer(api) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        with (folder / "errors").open("wb") as errors:
            process = subprocess.Popen(
                [
                    *("chromium-headless-shell", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
                    *("--no-first-run", "--disable-background-networking", "--no-proxy-server"),
                    # Without one of these it would leave when the page is there.
                    *("--remote-debugging-port=0", f"--user-data-dir={folder / 'profile'}"),
                    f"http://127.0.0.1:{server.server_port}/",
                ],
                stdout=errors,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, "HOME": str(folder)},
            )
        try:
            yield Client(lambda: server.seen)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            server.shutdown()
            thread.join(10)


# What they need


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where each node client finds its package."""
    folder = tmp_path_factory.mktemp("npm")
    installed(folder, "eventsource@3.0.7", "eventsource-parser@3.0.6")
    return {"eventsource 2": Path("/usr/share/nodejs"), "eventsource 3": folder / "node_modules"}


@contextmanager
def all_clients(api: Api, folder: Path, tools: dict[str, Path]) -> Iterator[dict[str, Client]]:
    """Every client, each with an open stream."""
    clients = {}
    with ExitStack() as opened:
        for name in CLIENTS:
            own = folder / name.replace(" ", "-")
            own.mkdir()
            if name in RUNNERS:
                made = python_client(name, api, own)
            elif name == "chromium":
                made = chromium(api, own)
            else:
                made = node_client(name, api, own, tools[name])
            clients[name] = opened.enter_context(made)
        for name, client in clients.items():
            wait_for(f"{name} to listen", lambda client=client: client.opened)
        yield clients


# What they see


class Run(NamedTuple):
    """What every client had at the end."""

    messages: dict[str, list[Seen]]
    opened: dict[str, int]


@pytest.fixture(scope="module")
def cut(tools: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """They listen while subscribers come and go, and all connections are cut twice."""
    folder = tmp_path_factory.mktemp("cut")
    with (
        running_stack(folder / "state", sessions=100, arrivals=15) as (api, process),
        all_clients(api, folder, tools) as clients,
    ):

        def behind(sequence: int) -> Callable[[], bool]:
            return lambda: all(
                client.messages and client.messages[-1].sequence > sequence for client in clients.values()
            )

        def newest() -> int:
            return max(client.messages[-1].sequence for client in clients.values())

        wait_for("everybody's first events", behind(0))
        for _ in range(2):
            wait_for("more events", behind(newest() + 20))
            workers = workers_of(process)
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
            wait_for_workers(process, len(workers), set(workers))
            wait_for("what everybody missed", behind(newest() + 20))
        return Run(
            {name: client.messages for name, client in clients.items()},
            {name: client.opened for name, client in clients.items()},
        )


@pytest.fixture(scope="module")
def silent(tools: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """They listen to a session that ends, a silence with a heartbeat in it, and another one that ends."""
    folder = tmp_path_factory.mktemp("silent")
    with (
        running_stack(folder / "state", sessions=10) as (api, _),
        all_clients(api, folder, tools) as clients,
    ):

        def have(number: int) -> Callable[[], bool]:
            return lambda: all(len(client.messages) >= number for client in clients.values())

        api.send("DELETE", "/subscribers/1")
        wait_for("the first end", have(1))
        # The one thing here that only real time brings.
        time.sleep(16)
        api.send("DELETE", "/subscribers/2")
        wait_for("the second end", have(2))
        return Run(
            {name: client.messages for name, client in clients.items()},
            {name: client.opened for name, client in clients.items()},
        )


@pytest.fixture(params=CLIENTS)
def name(request: pytest.FixtureRequest) -> str:
    given: str = request.param
    return given


def test_a_client_gets_events_with_names_ids_and_data(cut: Run, name: str) -> None:
    messages = cut.messages[name]
    common = ("at", "mac_address", "access_interface")
    fields = {
        "session_up": {"id", "type", "username", "ip_address", *common},
        "session_down": {"id", "username", "reason", *common, "bytes_in", "bytes_out", "duration_seconds"},
    }
    assert {message.name for message in messages} == set(fields)
    for message in messages:
        assert set(message.data) == fields[message.name]
        assert isinstance(message.data["id"], int)
        assert message.id.count("-") == 1


def test_a_client_whose_connection_was_cut_has_every_event_exactly_once(cut: Run, name: str) -> None:
    messages = cut.messages[name]
    assert cut.opened[name] >= 3
    assert len({message.id.rpartition("-")[0] for message in messages}) == 1
    sequences = [message.sequence for message in messages]
    assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))


def test_clients_have_the_same_events(cut: Run, name: str) -> None:
    of_all = {message.id: message for messages in cut.messages.values() for message in messages}
    assert all(of_all[message.id] == message for message in cut.messages[name])


def test_a_heartbeat_is_no_message_and_costs_no_connection(silent: Run, name: str) -> None:
    first, second = silent.messages[name]
    assert [(first.name, first.data["id"]), (second.name, second.data["id"])] == [
        ("session_down", 1),
        ("session_down", 2),
    ]
    assert second.sequence == first.sequence + 1
    assert silent.opened[name] == 1
