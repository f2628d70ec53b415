"""Program `gateway-relay`, or `python -m gateway_relay`: publishes what happens on one gateway."""

import asyncio
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import click
import nats
from nats.aio.client import Client as NatsConnection

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
_MEBIBYTE = 1024 * 1024

_log = logging.getLogger("gateway_relay")

_EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _check_servers(ctx: click.Context, param: click.Parameter, servers: Sequence[str]) -> Sequence[str]:
    for server in servers:
        parts = urlsplit(server)
        if parts.scheme not in {"tls", "nats"} or not parts.hostname or "@" in parts.netloc:
            raise click.BadParameter(f"must be tls://HOST:PORT, not {server!r}", ctx, param)
        if parts.scheme == "nats" and parts.hostname not in LOCAL_HOSTS:
            raise click.BadParameter("must begin with tls:// for another machine", ctx, param)
    return servers


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
    "--nats-ca", metavar="FILE", type=_EXISTING_FILE, show_envvar=True,
    help="CA certificate of the NATS servers, in PEM. The default is those of the system",
)  # fmt: skip
@click.option(
    "--nkey", metavar="FILE", type=_EXISTING_FILE, show_envvar=True,
    help="seed of the NKey with which the relay signs in",
)  # fmt: skip
@click.option(
    "--credentials", metavar="FILE", type=_EXISTING_FILE, show_envvar=True,
    help="credentials file (JWT and seed) with which the relay signs in, in place of --nkey",
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
    "--ca", metavar="FILE", type=_EXISTING_FILE, show_envvar=True,
    help="CA certificate of the gateway's API, in PEM. The default is those of the system",
)  # fmt: skip
@click.option(
    "--user", metavar="USER", required=True, show_envvar=True,
    help="user of the API. Audit records are published if the user is an admin",
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
    nkey: Path | None,
    credentials: Path | None,
    name: str,
    url: str,
    ca: Path | None,
    user: str,
    password_file: Path,
    state: Path,
    spool_mebibytes: int,
) -> int:
    """Publishes the events, commits, faults, health and audit records of a gateway to NATS JetStream, until
    SIGTERM or SIGINT."""
    if nkey and credentials:
        raise click.UsageError("--nkey and --credentials exclude each other.")
    format, level, setting_error = read_log_style(os.environ)
    logs.install(format)
    logging.getLogger().setLevel(level)
    if setting_error is not None:
        _log.error("%s; the log uses the default format and level", setting_error)
    spool = Spool(state / "spool.sqlite", spool_mebibytes * _MEBIBYTE)
    context = Context(name, url, str(ca) if ca else None)
    gateway = Gateway(context, Credentials(user, password_file), spool)

    async def connect() -> NatsConnection:
        return await nats.connect(
            list(servers),
            name=f"gateway-relay {name}",
            tls=ssl.create_default_context(cafile=nats_ca) if _uses_tls(servers) else None,
            nkeys_seed=str(nkey) if nkey else None,
            user_credentials=str(credentials) if credentials else None,
            # The server lets each gateway read its own replies only.
            inbox_prefix=f"_INBOX.{name}",
            reconnect_time_wait=_RECONNECT_SECONDS,
            max_reconnect_attempts=-1,
            error_cb=_log_error,
        )

    # Before the first connection: while NATS is away, the spool takes the messages.
    gateway.start()
    return asyncio.run(_publish(connect, lambda nats: Publisher(spool, nats, name, gateway.list_sessions)))


def _uses_tls(servers: Sequence[str]) -> bool:
    return any(urlsplit(server).scheme == "tls" for server in servers)


async def _log_error(error: Exception) -> None:
    _log.warning("NATS: %s", error)


async def _publish(
    connect: Callable[[], Awaitable[NatsConnection]], make_publisher: Callable[[NatsConnection], Publisher]
) -> int:
    """Publish until a signal arrives. Return the exit status: 1 if the NATS servers have refused the relay
    for good."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)

    async def publish() -> int:
        connection = await connect()
        _log.info("connected to %s", connection.connected_url and connection.connected_url.netloc)
        publishing = asyncio.create_task(make_publisher(connection).run())
        while not connection.is_closed:
            await asyncio.wait([publishing], timeout=_RECONNECT_SECONDS)
            if publishing.done():
                publishing.result()
        _log.error("the NATS servers have closed the connection for good; systemd starts the relay again")
        return 1

    if address := os.environ.get("NOTIFY_SOCKET"):
        notify(address)
    waiting = [asyncio.create_task(publish()), asyncio.create_task(ended.wait())]
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    return waiting[0].result() if waiting[0] in done else 0


def main(words: Sequence[str] | None = None) -> int:
    """Run the relay, by the arguments of the process unless `words` are given. Return the exit status; 2,
    with the usage on standard error, for wrong arguments."""
    return run(relay, "gateway-relay", words)


if __name__ == "__main__":
    sys.exit(main())
