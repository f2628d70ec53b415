"""A real PostgreSQL server, which only a socket in its folder reaches."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.stack import wait_for

#: The newest version that is installed.
_PROGRAMS = max(
    Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), default=None
)
#: PostgreSQL refuses to run as root.
_AS_NOBODY = ("setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups")


@contextmanager
def running_postgresql() -> Iterator[str]:
    """Run a server until the end of the block, and yield the URL of its database."""
    assert _PROGRAMS is not None, "PostgreSQL is not installed: packaging/test-tools"
    with TemporaryDirectory() as name:
        folder, wrap = Path(name), ()
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")
            wrap = _AS_NOBODY
        with _running_server(folder, wrap):
            yield f"postgresql://fleet@/postgres?host={folder}"


@contextmanager
def _running_server(folder: Path, wrap: Sequence[str]) -> Iterator[None]:
    data = folder / "data"
    subprocess.run(
        [
            *wrap,
            _PROGRAMS / "initdb",
            "--pgdata",
            data,
            "--username",
            "fleet",
            "--auth",
            "trust",
            "--no-sync",
        ],
        check=True,
        capture_output=True,
        cwd=folder,
    )
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*wrap, _PROGRAMS / "postgres", "-D", data, "-k", folder, "-h", "", "-c", "fsync=off"],
            stdout=log,
            stderr=log,
            cwd=folder,
        )
    try:
        wait_for(
            "PostgreSQL",
            lambda: (
                subprocess.run([_PROGRAMS / "pg_isready", "-q", "-h", folder], check=False).returncode == 0
            ),
        )
        yield
    finally:
        # A fast shutdown.
        server.send_signal(signal.SIGINT)
        server.wait(60)
