"""The API says at its start that its certificate has expired."""

import os
import subprocess
import sys
from pathlib import Path

from gateway_api.cli import certificates
from tests.support.stack import free_port, wait_for
from tests.unit.test_certificate import expire


def test_the_log_says_once_that_the_certificate_has_expired(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificates.ensure(certificate, key, "localhost")
    expire(certificate, key)
    (tmp_path / "runtime").mkdir()
    environment = {
        **os.environ,
        "GATEWAY_CORE_SOCKET": str(tmp_path / "core.sock"),
        "GATEWAY_API_RUNTIME": str(tmp_path / "runtime"),
        "GATEWAY_API_STATE": str(tmp_path),
        "GATEWAY_API_AUDIT": str(tmp_path / "audit"),
        "GATEWAY_API_BIND": f"127.0.0.1:{free_port()}",
        "GATEWAY_API_CERTIFICATE": str(certificate),
        "GATEWAY_API_KEY": str(key),
        "GATEWAY_API_WORKERS": "2",
    }
    gunicorn = str(Path(sys.executable).parent / "gunicorn")
    log = tmp_path / "log"
    with log.open("wb") as file:
        command = [gunicorn, "--config", "python:gateway_api.serving.users"]
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        said = f"the TLS certificate {certificate} expired at "
        wait_for("the line", lambda: said in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait(60)
    assert log.read_text().count(said) == 1
