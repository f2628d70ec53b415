"""The how-to pages, on a machine with the packages: what they show for it works when pasted, in the order of
the index and in one shell."""

from pathlib import Path

from tests.support.machine import booted
from tests.support.manual import blocks, script, wrong
from tests.support.package import install
from tests.support.shell import Terminal

_BLOCKS = blocks("shell")
_PASSWORD = "the operator's own password"
#: What the pages leave to the reader: a certificate, and a request.
_PREPARED = """
exec > outputs
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 -subj /CN=localhost \\
    -addext subjectAltName=DNS:localhost -keyout bng1.key -out bng1.pem
curl() { command curl --silent --fail-with-body "$@"; echo; }
curl --insecure --header 'X-Request-ID: req-42' https://localhost:8443/api/v1/subscribers || true
export COLUMNS=130
"""


def test_every_line_for_a_machine_with_the_package_works_when_pasted(
    packages: dict[str, Path], tmp_path: Path
) -> None:
    assert len(_BLOCKS) > 5
    with booted(tmp_path / "root") as machine:
        install(machine, packages.values())
        (machine.root / "root" / "lines").write_text(_PREPARED + script(_BLOCKS))
        environment = {"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        shell = Terminal(
            machine.entering("bash", "-c", "cd; exec bash -eu -o pipefail lines"), environment, tmp_path
        )
        # A new password, twice, a login with it, and another one after a restore.
        for prompt in ("New password of admin: ", "Again: ", "Password of admin: ", "Password of admin: "):
            shell.expect(prompt)
            shell.shown = ""
            shell.type(f"{_PASSWORD}\n")
        status = shell.end()
        outputs = (machine.root / "root" / "outputs").read_text()
    assert status == 0, shell.shown[-2000:] + outputs[-2000:]
    assert wrong(_BLOCKS, outputs) == []
