"""Program `gateway-relay`, or `python -m gateway_relay`: publishes what happens on one gateway."""

import asyncio
import logging
import os
import re
import signal
import socket
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import click
import nats
import nkeys
from nats.aio.client import RawCredentials

from gateway_client.contexts import DEFAULT_URL, LOCAL_HOSTS, Context, check_url
from gateway_client.errors import ClientError
from gateway_contract.base import logs
from gateway_contract.base.process import notify
from gateway_contract.base.variables import read_log_style
from gateway_contract.program import run
from gateway_contract.version import VERSION
from gateway_relay.gateway import Credentials, Gateway
from gateway_relay.publisher import Publisher
from gateway_relay.spool import Spool

#: Seconds between two attempts to connect to a NATS server.
_RECONNECT_SECONDS = 1
#: Seconds between two pings. The connection counts as lost after two pings without a reply.
_PING_SECONDS = 10
_MEBIBYTE = 1024 * 1024

_log = logging.getLogger("gateway_relay")

_EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_CREDENTIALS_PATTERN = re.compile(
    "-+BEGIN NATS USER JWT-+\n.+\n-+END NATS USER JWT-+\n.*"
    "-+BEGIN USER NKEY SEED-+\n(?P<seed>.+)\n-+END USER NKEY SEED-+",
    re.DOTALL,
)


def _check_servers(ctx: click.Context, param: click.Parameter, servers: Sequence[str]) -> Sequence[str]:
    for server in servers:
        try:
            parts = urlsplit(server)
            is_server = parts.port != 0 and bool(parts.hostname) and "@" not in parts.netloc
        except ValueError:
            is_server = False
        if not is_server or parts.scheme not in {"tls", "nats"}:
            raise click.BadParameter("must be tls://HOST:PORT", ctx, param)
        if parts.scheme == "nats" and parts.hostname not in LOCAL_HOSTS:
            raise click.BadParameter("must begin with tls:// for another machine", ctx, param)
    if len({urlsplit(server).scheme for server in servers}) > 1:
        raise click.BadParameter("must begin with tls:// for all servers or for none", ctx, param)
    return servers


def _check_certificate(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:
        raise click.BadParameter(f"must be a file of certificates in PEM: {error}", ctx, param) from error
    return path


def _read_nkey(ctx: click.Context, param: click.Parameter, path: Path | None) -> str | None:
    """Return the seed in the file."""
    if path is None:
        return None
    seed = path.read_text(errors="replace").strip()
    if not _is_seed(seed):
        raise click.BadParameter("must contain the seed of a user, which begins with SU", ctx, param)
    return seed


def _read_credentials(ctx: click.Context, param: click.Parameter, path: Path | None) -> RawCredentials | None:
    """Return the content of the file. nats-py would read a file without a JWT for ever."""
    if path is None:
        return None
    text = path.read_text(errors="replace")
    found = _CREDENTIALS_PATTERN.search(text)
    if found is None or not _is_seed(found["seed"]):
        raise click.BadParameter(
            "must contain the JWT and the seed of a user, as nsc writes them", ctx, param
        )
    return RawCredentials(text)


def _is_seed(text: str) -> bool:
    try:
        nkeys.from_seed(bytearray(text.encode())).wipe()
    except (nkeys.NkeysError, ValueError):
        return False
    return text.startswith("SU")


def _check_name(ctx: click.Context, param: click.Parameter, name: str) -> str:
    is_token = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    if not is_token or len(name) > 64:
        raise click.BadParameter("must be 1 to 64 letters, digits, hyphens and underscores", ctx, param)
    return name


def _check_gateway_url(ctx: click.Context, param: click.Parameter, url: str) -> str:
    try:
        return check_url(url)
    except ClientError as error:
        raise click.BadParameter(str(error), ctx, param) from error


@click.command(context_settings={"auto_envvar_prefix": "GATEWAY_RELAY", "show_default": True})
@click.option(
    "--nats", "servers", metavar="URL", multiple=True, required=True, envvar="GATEWAY_RELAY_NATS",
    show_envvar=True, callback=_check_servers,
    help="a server of the NATS cluster, tls://HOST:PORT; nats:// only on this machine",
)  # fmt: skip
@click.option(
    "--nats-ca", metavar="FILE", type=_EXISTING_FILE, callback=_check_certificate, show_envvar=True,
    help="CA certificates of the NATS servers, in PEM; by default those of the system",
)  # fmt: skip
@click.option(
    "--nkey", metavar="FILE", type=_EXISTING_FILE, callback=_read_nkey, show_envvar=True,
    help="seed of the NKey with which the relay logs in",
)  # fmt: skip
@click.option(
    "--credentials", metavar="FILE", type=_EXISTING_FILE, callback=_read_credentials, show_envvar=True,
    help="credentials file (JWT and seed) with which the relay logs in, in place of --nkey",
)  # fmt: skip
@click.option(
    "--name", metavar="NAME", default=lambda: socket.gethostname().partition(".")[0], callback=_check_name,
    show_envvar=True, show_default="the host name",
    help="name of the gateway in the subjects, gw.NAME",
)  # fmt: skip
@click.option(
    "--url", metavar="URL", default=DEFAULT_URL, callback=_check_gateway_url, show_envvar=True,
    help="URL of the gateway's API",
)  # fmt: skip
@click.option(
    "--ca", metavar="FILE", type=_EXISTING_FILE, callback=_check_certificate, show_envvar=True,
    help="CA certificates of the gateway's API, in PEM; by default the gateway's own certificate on this "
    "machine, or those of the system",
)  # fmt: skip
@click.option(
    "--user", metavar="USER", required=True, show_envvar=True,
    help="user of the API, with the role operator, or with the role admin to publish audit records",
)  # fmt: skip
@click.option(
    "--password-file", metavar="FILE", type=_EXISTING_FILE, required=True, show_envvar=True,
    help="file with the password of the user",
)  # fmt: skip
@click.option(
    "--state", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path),
    default=Path("/var/lib/gateway-relay"), show_envvar=True,
    help="folder of the spool",
)  # fmt: skip
@click.option(
    "--spool-mebibytes", metavar="N", type=click.IntRange(1, 65536), default=256, show_envvar=True,
    help="size limit of the spool, in which messages wait while NATS is away",
)  # fmt: skip
@click.version_option(VERSION, message="%(prog)s %(version)s")
def relay(
    servers: Sequence[str],
    nats_ca: Path | None,
    nkey: str | None,
    credentials: RawCredentials | None,
    name: str,
    url: str,
    ca: Path | None,
    user: str,
    password_file: Path,
    state: Path,
    spool_mebibytes: int,
) -> int:
    """Publishes the events, commits, faults, health and audit records of a gateway to NATS JetStream."""
    if nkey and credentials:
        raise click.UsageError("--nkey and --credentials exclude each other.")
    format, level, setting_error = read_log_style(os.environ)
    logs.install(format)
    logging.getLogger().setLevel(level)
    if setting_error is not None:
        _log.error("%s; the log uses the default format and level", setting_error)
    # The spool survives the end of the process at any time.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    spool = Spool(state / "spool.sqlite", spool_mebibytes * _MEBIBYTE)
    context = Context(name, url, str(ca) if ca else None)
    gateway = Gateway(context, Credentials(user, password_file), spool)
    # Before the first connection: while NATS is away, the spool takes the messages.
    gateway.start()
    if address := os.environ.get("NOTIFY_SOCKET"):
        notify(address)
    uses_tls = all(urlsplit(server).scheme == "tls" for server in servers)
    errors = _ConnectionErrors()

    async def publish() -> None:
        connection = await nats.connect(
            list(servers),
            name=f"gateway-relay {name}",
            tls=ssl.create_default_context(cafile=nats_ca) if uses_tls else None,
            # Otherwise nats-py goes on without TLS if the server does not ask for TLS.
            tls_handshake_first=uses_tls,
            nkeys_seed_str=nkey,
            user_credentials=credentials,
            # The server lets each gateway read its own replies only.
            inbox_prefix=f"_INBOX.{name}",
            reconnect_time_wait=_RECONNECT_SECONDS,
            max_reconnect_attempts=-1,
            ping_interval=_PING_SECONDS,
            error_cb=errors.log,
            reconnected_cb=errors.forget,
        )
        await errors.forget()
        await Publisher(spool, connection, name, gateway.list_sessions).run()

    asyncio.run(publish())
    _log.error("the NATS server has closed the connection for good; systemd starts the relay again")
    return 1


class _ConnectionErrors:
    """Log of the errors of the connection to NATS, with each error once in a time without a connection."""

    def __init__(self) -> None:
        self._texts: set[str] = set()

    async def log(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        if text not in self._texts:
            _log.warning("connection to NATS: %s; messages wait in the spool", text)
        self._texts.add(text)

    async def forget(self) -> None:
        """Log the next errors again, after a connection."""
        _log.info("connected to NATS")
        self._texts.clear()


def main(words: Sequence[str] | None = None) -> int:
    """Run the relay, by the arguments of the process unless `words` are given. Return the exit status; 2,
    with the usage on standard error, for wrong arguments."""
    return run(relay, "gateway-relay", words)


if __name__ == "__main__":
    sys.exit(main())
