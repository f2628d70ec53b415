"""Several lab gateways, each behind a proxy that can lose requests and responses, and `gatewayctl` with a
context for each gateway."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import requests

from tests.support.receivers import answer
from tests.support.running_gateway import Gateway
from tests.support.shell import Shell
from tests.support.stack import PATIENCE, core_of, descendants, make_state, running_stack, wait_for

#: Label of the contexts of all gateways.
LABEL = "fleet"
_API_PREFIX = "/api/v1"


class Passing(NamedTuple):
    """A request that passes a proxy, or the response to it."""

    site: "Site"
    is_response: bool
    method: str
    path: str

    def is_(self, name: str, moment: str) -> bool:
        """Return True for a moment such as `before POST /system/config/commit` at the gateway `name`."""
        when = "after" if self.is_response else "before"
        return self.site.name == name and moment == f"{when} {self.method} {self.path}"


#: Function that a proxy calls with each request and response. The proxy closes the connection instead of
#: passing something for which the function returns True.
Hook = Callable[[Passing], bool]


class Site:
    """A gateway behind a proxy. The proxy closes all connections while `is_cut` is set."""

    def __init__(self, name: str, gateway: Gateway) -> None:
        self.name = name
        self.gateway = gateway
        self.api = gateway.api
        self.is_cut = False
        self.hook: Hook = lambda _: False
        self.url = ""

    @property
    def value(self) -> str:
        """The value of the running configuration that the tests change."""
        value: str = self.api.get("/system/config")["qos"]["default_down"]
        return value

    @property
    def difference(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get("/system/config/compare", "admin")
        return found

    def edit(self, path: str, value: Any) -> None:
        """Stage a change as another user does."""
        sent = self.api.send("POST", "/system/config/set", json={"path": path, "value": value})
        assert sent.status_code == 200, sent.text

    def discard(self) -> None:
        assert self.api.send("POST", "/system/config/discard").status_code == 200

    def kill_core(self) -> None:
        """Kill the core. The starter starts another core."""
        os.kill(core_of(self.gateway.process), signal.SIGKILL)

    def kill_api(self) -> None:
        """Kill all processes of the API. The starter starts them again."""
        for pid in descendants(self.gateway.process.pid):
            command = Path(f"/proc/{pid}/cmdline")
            if command.exists() and b"gateway_core" not in command.read_bytes():
                os.kill(pid, signal.SIGKILL)

    def wait_until_well(self) -> None:
        """Wait until the gateway responds again after a kill."""

        def responds() -> bool:
            try:
                return self.api.send("GET", "/health", None).ok
            except requests.RequestException:
                return False

        wait_for(f"a response of {self.name}", responds)

    @contextmanager
    def proxied(self) -> Iterator[None]:
        """Run the proxy during the block."""

        class Handler(BaseHTTPRequestHandler):
            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                path = self.path.removeprefix(_API_PREFIX).partition("?")[0]
                if site.is_cut or site.hook(Passing(site, False, self.command, path)):
                    self._lose()
                    return
                try:
                    response = requests.request(
                        self.command, f"{site.api.url}{self.path}", data=body,
                        headers={**self.headers, "Accept-Encoding": "identity"},
                        verify=site.api.session.verify, timeout=PATIENCE,
                    )  # fmt: skip
                except requests.RequestException:
                    self._lose()
                    return
                if site.hook(Passing(site, True, self.command, path)) or site.is_cut:
                    self._lose()
                    return
                names = ("Content-Type", "ETag")
                heads = [f"{name}: {response.headers[name]}" for name in names if name in response.headers]
                self.wfile.write(
                    answer(response.status_code, *heads, "Connection: close", body=response.content)
                )

            do_GET = do_POST = do_PUT = _pass

            def _lose(self) -> None:
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """A killed client may leave in the middle of a response."""

        site = self
        server = Server(("127.0.0.1", 0), Handler)
        server.socket = self.gateway.tls().wrap_socket(server.socket, server_side=True)
        self.url = f"https://localhost:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class Fleet:
    """Lab gateways gw01, gw02 and so on, and a shell that has a context for each of them."""

    def __init__(self, sites: list[Site], shell: Shell) -> None:
        self.sites = sites
        self.shell = shell

    def __getitem__(self, name: str) -> Site:
        return next(site for site in self.sites if site.name == name)

    def set_hook(self, hook: Hook) -> None:
        for site in self.sites:
            site.hook = hook


@contextmanager
def running_fleet(folder: Path, count: int, sessions: int = 20, **settings: str) -> Iterator[Fleet]:
    """Run gateways, which have the same passwords and the same certificate, until the end of the block.
    `settings` are further environment variables by the name of a gateway, such as gw03="ARRIVALS=1"."""
    names = [f"gw{number:02}" for number in range(1, count + 1)]
    for name in names:
        make_state(folder / name)
    stacks = {name: ExitStack() for name in names}

    def start(name: str) -> Site:
        key, _, value = settings.get(name, "WORKERS=1").partition("=")
        variables = {"WORKERS": "1", key: value}
        running = running_stack(folder / name, sessions=sessions, **variables)
        site = Site(name, Gateway(*stacks[name].enter_context(running), folder / name))
        stacks[name].enter_context(site.proxied())
        return site

    with ThreadPoolExecutor(4) as pool, ExitStack() as stack:
        stack.callback(lambda: list(pool.map(ExitStack.close, stacks.values())))
        sites = list(pool.map(start, names))
        home = folder / "home"
        home.mkdir()
        shell = Shell(sites[0].api, home)
        for name in ("GATEWAY_URL", "GATEWAY_CA"):
            ca = shell.environment.pop(name)
        for site in sites:
            # `has` takes the CA certificate from the environment of the shell.
            shell.environment["GATEWAY_CA"] = ca
            shell.has(site.api.token("admin"), site.name, url=site.url, labels=[LABEL])
            del shell.environment["GATEWAY_CA"]
        yield Fleet(sites, shell)


class Outcome(NamedTuple):
    """What a fleet runs: the number of gateways with the former value, with the new value, and with a commit
    that waits for its confirmation. `staged` are the gateways with a staged change of the rollout, and
    `strays` those with another value."""

    former: int
    new: int
    waiting: int
    staged: list[str]
    strays: list[str]


def read_outcome(fleet: Fleet, former: dict[str, str], new: str) -> Outcome:
    """Read what a fleet runs. `former` are the values before the change, by the names of the gateways."""
    counts = {"former": 0, "new": 0, "waiting": 0}
    staged, strays = [], []
    for site in fleet.sites:
        site.wait_until_well()
        difference, value = site.difference, site.value
        counts["waiting"] += difference["confirm_deadline"] is not None
        counts["new" if value == new else "former"] += 1
        if f'"{new}"' in difference["diff"] and value != new:
            staged.append(site.name)
        if value not in (former[site.name], new):
            strays.append(site.name)
    return Outcome(**counts, staged=staged, strays=strays)
