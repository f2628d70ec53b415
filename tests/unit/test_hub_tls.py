"""A fork beside a thread of the hub that uses TLS: the child inherits no lock of OpenSSL."""

import os
import ssl
import threading
from pathlib import Path

import certifi

from gateway_api.hub.tls import HubTlsContext


def fork_and_use_tls() -> int:
    """The exit status of a child that made a TLS context."""
    pid = os.fork()
    if pid == 0:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1]


def test_a_fork_waits_until_a_thread_has_read_its_certificates(tmp_path: Path) -> None:
    pipe = tmp_path / "certificates.pem"
    os.mkfifo(pipe)
    order = []

    def load() -> None:
        HubTlsContext.new(ssl.create_default_context).load_verify_locations(str(pipe))

    def fork() -> None:
        assert fork_and_use_tls() == 0
        order.append("forked")

    loading = threading.Thread(target=load)
    loading.start()
    # This returns when OpenSSL reads at the other end.
    with pipe.open("wb") as written:
        forking = threading.Thread(target=fork)
        forking.start()
        forking.join(1)
        order.append("read")
        written.write(Path(certifi.where()).read_bytes())
    loading.join()
    forking.join()
    assert order == ["read", "forked"]
