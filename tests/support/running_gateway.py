"""A running gateway whose core can be stopped, and a stub that responds in the gateway's place."""

import json
import os
import signal
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.receivers import answer
from tests.support.stack import Api, core_of

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
