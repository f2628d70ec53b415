"""Starter of `make fleet`: runs several gateways with simulated subscribers, a NATS server, a relay for each
gateway, and the example consumer, which keeps the history of all gateways.

Each program runs as on machines of its own. The programs are started again when they end, and are stopped at
a signal. Their files stay in a folder between runs.
"""

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import click
import nkeys

from gateway_api.cli.run import RunFolder
from gateway_api.cli.starter import (
    CannotRun,
    Program,
    Starter,
    Stopped,
    block_stop_signals,
    require_free_port,
)
from gateway_client.contexts import Context, Contexts, ContextsFile
from gateway_client.gateway import RemoteGateway, log_in
from gateway_contract import program
from gateway_contract.base import durable
from gateway_contract.base.errors import GatewayApiError

_EXAMPLES = Path(__file__).parents[1] / "etc" / "examples"
_CONSUMER = _EXAMPLES / "fleet_history.py"
#: A starter of a gateway stops two programs, one after the other.
_STOP_SECONDS = 8.0
#: The contexts get new tokens before the tokens expire.
_LOGIN_SECONDS = 1800.0

_SERVER = """\
server_name: fleet
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{folder}", max_file_store: 1GB }}
accounts {{
  FLEET: {{
    jetstream: enabled
    exports: [ {{ service: "gw.>" }} ]
    users: [ {{ nkey: {administrator} }} ]
  }}
  GATEWAYS: {{
    imports: [ {{ service: {{ account: FLEET, subject: "gw.>" }} }} ]
    users: [
{relays}
    ]
  }}
}}
"""
#: docs/explanation/relay.md explains the accounts and the permissions.
_RELAY = '      {{ nkey: {key}, permissions: {{ publish: "gw.{name}.>", subscribe: "_INBOX.{name}.>" }} }}'

_GREETING = """
{count} gateways with simulated subscribers are running. Ctrl-C stops them.

{pages}

  User:      admin
  Password:  in {passwords}
  Logs:      {logs}

In another shell:

  . {environment}
  gatewayctl --all subscribers summary
  gatewayctl --all subscribers find {username}
  python {consumer} who {address}
  echo '{{"qos": {{"default_down": "200mbit"}}}}' > {change}
  gatewayctl rollout {change} --on lab --canary 1 --wave 2 --dry-run

docs/tutorial/fleet.md goes on from here.
"""


class FleetFolder:
    """Folder `STATE` of `make fleet`, with the files of all programs. `names` are the names of the
    gateways."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.names = [f"bng{number}" for number in range(1, count + 1)]
        self.gateways = {name: RunFolder(folder / name) for name in self.names}
        self.logs = folder / "logs"
        self.history = folder / "history.sqlite"
        self.environment = folder / "environment"
        self.server = folder / "nats.conf"
        self.administrator = folder / "administrator.nk"
        self.contexts = ContextsFile({"XDG_CONFIG_HOME": str(folder)})

    def prepare(self, nats_port: int) -> None:
        """Create the folders, the keys of the users of the NATS server, and its configuration. Raises OSError
        if a file cannot be read or written."""
        self.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.environment.unlink(missing_ok=True)
        # The last run may have had more gateways.
        self.contexts.path.unlink(missing_ok=True)
        text = _SERVER.format(
            port=nats_port,
            folder=self.folder / "jetstream",
            administrator=_make_key(self.administrator),
            relays="\n".join(
                _RELAY.format(key=_make_key(self.get_key_path(name)), name=name) for name in self.names
            ),
        )
        durable.replace(self.server, text.encode())

    def get_key_path(self, name: str) -> Path:
        """Return the path of the key with which the relay of a gateway logs in."""
        return self.folder / f"{name}.nk"

    def write_password(self, name: str) -> Path:
        """Write the password of the user admin of a gateway to a file, and return the path."""
        path = self.folder / f"{name}.password"
        durable.replace(path, self.gateways[name].passwords["admin"].encode())
        return path

    def write_environment(self) -> None:
        """Write the file with shell assignments: gatewayctl and the consumer use the fleet."""
        assignments = {
            "XDG_CONFIG_HOME": str(self.folder),
            "FLEET_DATABASE": str(self.history),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        lines = (f"export {name}={shlex.quote(text)}\n" for name, text in assignments.items())
        durable.replace(self.environment, "".join(lines).encode())


@click.command()
@click.option("--gateways", "count", envvar="GATEWAYS", type=click.IntRange(1, 31), default=5)
@click.option(
    "--port", envvar="PORT", type=click.IntRange(1, 65535 - 31), default=8443, help="of the first gateway"
)
@click.option("--nats-port", envvar="NATS_PORT", type=click.IntRange(1, 65535), default=4222)
@click.option("--sessions", envvar="SESSIONS", type=click.IntRange(10, 200_000), default=200)
@click.option("--arrivals", envvar="ARRIVALS", type=float, default=0.5, help="per second and gateway")
@click.option("--state", envvar="STATE", type=click.Path(path_type=Path, resolve_path=True), default=".fleet")
def fleet(count: int, port: int, nats_port: int, sessions: int, arrivals: float, state: Path) -> None:
    """Run a fleet of gateways with simulated subscribers until a signal."""
    for each in range(port, port + count):
        require_free_port(each, "PORT")
    require_free_port(nats_port, "NATS_PORT")
    folder = FleetFolder(state, count)
    folder.prepare(nats_port)
    starter = Starter(_STOP_SECONDS)
    programs: list[Program] = []

    def start(name: str, command: list[str], is_ready: Callable[[], bool] = lambda: True) -> Program:
        program = Program(name, command, is_ready, output=(folder.logs / f"{name}.log").open("wb"))
        programs.append(program)
        starter.start(program)
        return program

    def wait_for(program: Program) -> None:
        if not starter.wait_until_ready(program):
            raise CannotRun(f"the {program.name} did not start; its output is in {folder.logs}")

    nats = f"nats://127.0.0.1:{nats_port}"
    consumer = [sys.executable, str(_CONSUMER)]
    administration = ["--nats", nats, "--nkey", str(folder.administrator)]
    server = [str(Path(sys.executable).with_name("nats-server")), "--config", str(folder.server)]
    try:
        wait_for(start("nats-server", server, partial(_listens, nats_port)))
        creator = [sys.executable, str(_EXAMPLES / "fleet_stream.py"), "create-stream"]
        subprocess.run([*creator, *administration, "--gibibytes", "1"], check=True)
        gateways = [
            start(
                name,
                [
                    *(sys.executable, "-m", "gateway_api.cli.run", "--number", str(number)),
                    *("--port", str(port + number - 1), "--state", str(folder.gateways[name].folder)),
                    *("--sessions", str(sessions), "--arrivals", str(arrivals), "--workers", "1"),
                ],
                folder.gateways[name].environment.exists,
            )
            for number, name in enumerate(folder.names, 1)
        ]
        for gateway in gateways:
            wait_for(gateway)
        start("history", [*consumer, "follow", *administration, "--database", str(folder.history)])
        urls = {name: f"https://localhost:{port + index}" for index, name in enumerate(folder.names)}
        for name, url in urls.items():
            start(
                f"relay-{name}",
                [
                    *(sys.executable, "-m", "gateway_relay", "--nats", nats, "--name", name),
                    *("--nkey", str(folder.get_key_path(name)), "--url", url),
                    *("--ca", str(folder.gateways[name].certificate), "--user", "admin"),
                    *("--password-file", str(folder.write_password(name))),
                    *("--state", str(folder.folder / f"relay-{name}")),
                ],
            )
        _log_in(folder, urls)
        folder.write_environment()
        click.echo(_greet(folder, urls))
        while starter.watch(_LOGIN_SECONDS):
            _log_in(folder, urls)
    except Stopped:
        return
    finally:
        starter.stop(programs)
        # Scripts that find the file rely on running gateways.
        folder.environment.unlink(missing_ok=True)


def _make_key(path: Path) -> str:
    """Return the public key of the NKey in a file. Create the file if there is none."""
    if not path.exists():
        durable.replace(path, nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))
    return str(nkeys.from_seed(path.read_bytes()).public_key.decode())


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def _log_in(folder: FleetFolder, urls: dict[str, str]) -> None:
    """Log in to all gateways: each has a context of its name, with labels."""
    for number, (name, url) in enumerate(urls.items(), 1):
        gateway = folder.gateways[name]
        context = Context(name, url, str(gateway.certificate))
        log_in(RemoteGateway(context), folder.contexts, "admin", gateway.passwords["admin"])
        label = partial(Contexts.change_labels, name=name, add=("lab", "west" if number % 2 else "east"))
        folder.contexts.edit(label)


def _greet(folder: FleetFolder, urls: dict[str, str]) -> str:
    last = folder.contexts.read().get(folder.names[-1])
    session = RemoteGateway(last).get("/subscribers", type="pppoe", limit=1)["sessions"][0]
    return _GREETING.format(
        count=len(urls),
        pages="\n".join(f"  {f'Page of {name}:':<14} {url}/" for name, url in urls.items()),
        passwords=folder.folder / "NAME.password",
        logs=folder.logs,
        environment=shlex.quote(str(folder.environment)),
        consumer=shlex.quote(str(_CONSUMER)),
        change=shlex.quote(str(folder.folder / "change.json")),
        username=session["username"],
        address=session["ip_address"],
    )


def main() -> int:
    """Run the command, and return the exit status: 0 after a signal, 1 if the fleet could not run, or 2 if a
    variable has a wrong value."""
    block_stop_signals()
    try:
        return program.run(fleet, "make fleet")
    except (GatewayApiError, OSError, subprocess.CalledProcessError) as error:
        click.echo(f"cannot run the fleet: {error}", err=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
