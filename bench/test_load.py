"""The bench measures no side that lacks TLS 1.3."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from bench.load import Request, Target
from gateway_api.cli import certificates


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"body")

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(folder: Path, newest: ssl.TLSVersion) -> Iterator[Request]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    certificates.ensure(certificate, key, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = newest
    context.load_cert_chain(certificate, key)
    with HTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Request(f"https://localhost:{server.server_port}", (Target("/"),), certificate=certificate)
        finally:
            server.shutdown()
            thread.join()


def test_a_side_with_tls_1_3_gives_its_response(tmp_path: Path) -> None:
    with served(tmp_path, ssl.TLSVersion.TLSv1_3) as request:
        assert request.probe()[1] == b"body"


def test_a_side_without_tls_1_3_is_not_measured(tmp_path: Path) -> None:
    with served(tmp_path, ssl.TLSVersion.TLSv1_2) as request, pytest.raises(ssl.SSLError, match="VERSION"):
        request.probe()
