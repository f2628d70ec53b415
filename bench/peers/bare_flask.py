"""Flask with nothing on it, under gunicorn's own gevent workers: bytes from files, for every client.

The upper limit of an application in this framework: no access checks, limits, counters or log lines.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flask import Flask, Response

from bench.load import Request, Target
from bench.processes import listening
from gateway_api.cli import certificates
from tests.support.stack import free_port

_WORKERS = 2
_REPOSITORY = Path(__file__).parents[2]


def application() -> Flask:
    """Its responses are the files of the folder ANSWERS, below their names."""
    answers = {path.name: path.read_bytes() for path in Path(os.environ["ANSWERS"]).iterdir()}
    app = Flask(__name__)

    @app.get("/<name>")
    def answer(name: str) -> Response:
        return Response(answers[name], mimetype="application/json")

    return app


@contextmanager
def bare_flask(folder: Path, answers: Mapping[str, bytes]) -> Iterator[dict[str, Request]]:
    """The requests that get these answers, over TLS."""
    port, held = free_port(), folder / "answers"
    held.mkdir(parents=True)
    for name, body in answers.items():
        (held / name).write_bytes(body)
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    certificates.ensure(certificate, key, "localhost")
    command = [
        *(str(Path(sys.executable).parent / "gunicorn"), "bench.peers.bare_flask:application()"),
        *("--workers", str(_WORKERS), "--worker-class", "gevent", "--bind", f"127.0.0.1:{port}"),
        *("--keep-alive", "30", "--no-control-socket", "--chdir", str(_REPOSITORY)),
        *("--certfile", str(certificate), "--keyfile", str(key)),
    ]
    with listening(command, port, folder / "log", {"ANSWERS": str(held)}):
        url = f"https://localhost:{port}"
        yield {name: Request(url, (Target(f"/{name}"),), certificate=certificate) for name in answers}
