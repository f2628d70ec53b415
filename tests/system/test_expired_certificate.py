"""The API says at its start, and at each reload, that its certificate has expired."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway_api.cli import certificates
from tests.support.stack import free_port, wait_for
from tests.unit.test_certificate import expire


class Expired:
    """An API with a certificate that has expired."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, certificate: Path) -> None:
        self.process = process
        self._log = log
        self._said = f"the TLS certificate {certificate} expired at "

    def lines(self) -> int:
        return self._log.read_text().count(self._said)

    def wait_for_lines(self, number: int) -> None:
        wait_for("the line", lambda: self.lines() >= number or self.process.poll() is not None)
        assert self.process.poll() is None, self._log.read_text()


@contextmanager
def running(folder: Path) -> Iterator[Expired]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    certificates.ensure(certificate, key, "localhost")
    expire(certificate, key)
    (folder / "runtime").mkdir()
    environment = {
        **os.environ,
        "GATEWAY_CORE_SOCKET": str(folder / "core.sock"),
        "GATEWAY_API_RUNTIME": str(folder / "runtime"),
        "GATEWAY_API_STATE": str(folder),
        "GATEWAY_API_AUDIT": str(folder / "audit"),
        "GATEWAY_API_BIND": f"127.0.0.1:{free_port()}",
        "GATEWAY_API_CERTIFICATE": str(certificate),
        "GATEWAY_API_KEY": str(key),
        "GATEWAY_API_WORKERS": "2",
    }
    gunicorn = str(Path(sys.executable).parent / "gunicorn")
    log = folder / "log"
    with log.open("wb") as file:
        command = [gunicorn, "--config", "python:gateway_api.serving.users"]
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield Expired(process, log, certificate)
    finally:
        process.terminate()
        process.wait(60)


def test_the_log_says_once_more_after_a_reload_that_the_certificate_has_expired(tmp_path: Path) -> None:
    with running(tmp_path) as api:
        api.wait_for_lines(1)
        assert api.lines() == 1
        api.process.send_signal(signal.SIGHUP)
        api.wait_for_lines(2)
    assert api.lines() == 2
