"""Running gateways: one whose core can be stopped, a stub in its place, and one with faults."""

import json
import os
import signal
import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from gateway_contract.core.health import (
    DelayCount,
    Dependency,
    DependencyState,
    Fault,
    FaultKind,
    LimitDelays,
    PacketDrops,
    SkippedEntries,
    TriggerRefusal,
)
from tests.support.receivers import answer
from tests.support.stack import Api, core_of, running_api, running_core

#: Status, and a document or the body itself.
Reply = tuple[int, dict[str, Any] | bytes]


class Gateway(NamedTuple):
    api: Api
    process: "subprocess.Popen[bytes]"
    state: Path

    @contextmanager
    def without_core(self) -> Iterator[None]:
        """Stop the core's process for the block, so that it does not reply."""
        core = core_of(self.process)
        os.kill(core, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(core, signal.SIGCONT)

    def tls(self) -> ssl.SSLContext:
        """Return a TLS context of a server with the gateway's certificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.state / "certificate.pem", self.state / "key.pem")
        return context

    @contextmanager
    def replaced(
        self, reply: Callable[[str, str], Reply], seen: list[tuple[Any, ...]] | None = None
    ) -> Iterator[str]:
        """Run a stub with the gateway's certificate, and yield its address. `reply` returns the status and
        document for a method and a path; `seen` gets method, path, body and some headers of each request."""

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                if seen is not None:
                    told = [self.headers[name] for name in ("Authorization", "If-Match", "Last-Event-ID")]
                    seen.append((self.command, self.path, body, *told))
                status, document = reply(self.command, self.path)
                sent = document if isinstance(document, bytes) else json.dumps(document).encode()
                # The end of the connection may come after the client has sent its next request there.
                heads = ("Content-Type: application/json", "Connection: close")
                self.wfile.write(answer(status, *heads, body=sent))

            do_GET = do_POST = do_PUT = do_DELETE = _answer

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.socket = self.tls().wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://localhost:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


PROGRAM = "tests.support.faulty_core"
BEGAN = 1_795_271_513
#: Session 1 has the first two. In no order.
FAULTS = (
    Fault(FaultKind.SHAPER, "ppp0", 1, "No space left on device", BEGAN + 9),
    Fault(FaultKind.HOST_ROUTE, "100.64.0.1/32", 1, "Network is unreachable", BEGAN),
    Fault(FaultKind.VLAN, "trunk0.4000", None, "<b>File exists</b>", BEGAN + 5),
    *(
        Fault(FaultKind.IFB, f"ifb-ppp{number}", number, "No such device", BEGAN + 9)
        for number in range(2, 12)
    ),
)
REPAIRS = {kind: number for number, kind in enumerate(FaultKind)}
REFUSALS = Counter({reason: 100 + number for number, reason in enumerate(TriggerRefusal)})
SKIPPED = (SkippedEntries("dnsmasq", "lease", 3), SkippedEntries("kernel", "link", 0))
DROPS = (PacketDrops("trunk0", 7, 9), PacketDrops("ppp", 8, 10))
DELAYS = LimitDelays((DelayCount(0.5, 297), DelayCount(1.0, 298)), 300, 12.5)
SOURCES = ("accel-ppp", "dnsmasq")
DEPENDENCIES = (
    Dependency("accel-ppp", DependencyState.FAILED, "accel-ppp has not replied since 2026-03-01T12:00:00Z."),
    Dependency("dnsmasq", DependencyState.UNKNOWN, "dnsmasq has not replied yet."),
    Dependency("radius", DependencyState.DEGRADED, "2 requests timed out in the last 5 minutes."),
    Dependency("frr", DependencyState.OK, "All BGP sessions are established: 2."),
    Dependency("clock", DependencyState.UNUSED, "Nobody needs the time."),
)
#: The ids of sessions whose source does not reply.
STALE = (1, 2, 3)


def held(socket: Path, method: str) -> Path:
    """Return the path of a file. While the file exists, the core does not reply to calls that need
    `method` of the gateway."""
    return socket.with_name(f"held-{method}")


@contextmanager
def faulty_gateway(api: Api, state: Path, folder: Path) -> Iterator[Api]:
    """Run a gateway with 20 sessions and these faults. Its users are those of the stack `api`, whose
    folder is `state`."""
    socket = folder / "core.sock"
    with (
        running_core(socket, state / "factory.json", "--sessions", "20", module=PROGRAM),
        running_api(socket, state) as url,
    ):
        yield Api({**api.environment, "GATEWAY_URL": url})
