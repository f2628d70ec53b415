"""nginx, Debian's, with Debian's access log: files, and event streams by its module nchan."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.load import Request, Target
from bench.processes import listening
from gateway_api.cli import certificates
from tests.support.stack import free_port

#: Where a client listens, and where an event is published.
STREAM, PUBLISH = "/events", "/publish"
_NCHAN = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")
_WORKERS = 2
_CONFIGURATION = """
{module}
daemon off;
user root;
worker_processes {workers};
worker_rlimit_nofile 65536;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 16384; }}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    sendfile on;
    default_type application/json;
    server {{
        listen 127.0.0.1:{port} backlog=4096{tls};
        {locations}
    }}
}}
"""
_TLS = """
ssl_certificate {certificate};
ssl_certificate_key {key};
ssl_protocols TLSv1.3;
"""
_CHANNEL = f"""
location = {STREAM} {{ nchan_subscriber eventsource; nchan_channel_id sessions; }}
location = {PUBLISH} {{ nchan_publisher; nchan_channel_id sessions; }}
"""


def is_installed() -> bool:
    return shutil.which("nginx") is not None


def has_nchan() -> bool:
    return is_installed() and _NCHAN.exists()


@contextmanager
def files(folder: Path, answers: Mapping[str, bytes]) -> Iterator[dict[str, Request]]:
    """The requests that get these bytes from files, over TLS."""
    root = folder / "root"
    root.mkdir(parents=True)
    for name, body in answers.items():
        (root / name).write_bytes(body)
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    certificates.ensure(certificate, key, "localhost")
    tls = _TLS.format(certificate=certificate, key=key)
    with _nginx(folder, "", f"root {root};{tls}", " ssl") as port:
        url = f"https://localhost:{port}"
        yield {name: Request(url, (Target(f"/{name}"),), certificate=certificate) for name in answers}


@contextmanager
def streams(folder: Path) -> Iterator[int]:
    """The port of nchan, without TLS."""
    folder.mkdir(parents=True)
    with _nginx(folder, f"load_module {_NCHAN};", _CHANNEL) as port:
        yield port


@contextmanager
def _nginx(folder: Path, module: str, locations: str, tls: str = "") -> Iterator[int]:
    port, file = free_port(), folder / "nginx.conf"
    file.write_text(
        _CONFIGURATION.format(
            folder=folder, module=module, locations=locations, port=port, tls=tls, workers=_WORKERS
        )
    )
    command = ["nginx", "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(file)]
    with listening(command, port, folder / "log"):
        yield port
