"""Debian's rsyslog as a receiver of the audit log, with the example of its configuration, at a port of
127.0.0.1."""

import json
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.stack import free_port, wait_for

EXAMPLE = Path(__file__).parents[2] / "etc" / "examples" / "rsyslog-gateway-audit.conf"
#: Each message as it arrived, beside what the example writes.
_RAW = """
template(name="raw" type="string" string="%rawmsg%\\n")
ruleset(name="gateway-audit" queue.type="Direct") {{
    action(type="omfile" file="{folder}/raw" template="raw")
"""
#: RFC 5424 section 6, with an empty PROCID and no structured data.
_MESSAGE = re.compile(
    r"<(?P<priority>\d{1,3})>1 (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (?P<host>[!-~]{1,255})"
    r" (?P<program>[!-~]{1,48}) - (?P<id>[!-~]{1,32}) - (?P<text>\{.*\})"
)


@dataclass
class Rsyslog:
    """A receiver, with a certificate for `localhost`. With the mode `x509/certvalid`, it requires a
    certificate of its client."""

    folder: Path
    certificate: Path
    key: Path
    mode: str = "anon"

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        text = EXAMPLE.read_text()
        for example, own in (
            ("/etc/ssl/certs/ca-certificates.crt", str(self.certificate)),
            ("/etc/rsyslog.d/logs.pem", str(self.certificate)),
            ("/etc/rsyslog.d/logs.key", str(self.key)),
            ("/var/log/gateway-audit.log", f"{self.folder}/gateway-audit.log"),
            ('streamDriver.authMode="anon"', f'streamDriver.authMode="{self.mode}"'),
            ('port="6514"', f'address="127.0.0.1" port="{self.port}"'),
            ('ruleset(name="gateway-audit" queue.type="Direct") {\n', _RAW.format(folder=self.folder)),
        ):
            assert example in text
            text = text.replace(example, own)
        (self.folder / "rsyslog.conf").write_text(f'global(workDirectory="{self.folder}")\n{text}')

    @property
    def destination(self) -> str:
        return f"tls://localhost:{self.port}"

    def start(self) -> None:
        pid_file, configuration = self.folder / "pid", self.folder / "rsyslog.conf"
        pid_file.unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["rsyslogd", "-n", "-i", pid_file, "-f", configuration], stdout=log, stderr=log
            )
        wait_for("rsyslog", lambda: pid_file.exists() and self._listens())

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> None:
        """Stop rsyslog until SIGCONT. On a busy machine, a thread that was woken by a message still reads it
        after the signal, so wait until all threads are stopped."""
        self.signal(signal.SIGSTOP)
        assert self.process is not None
        tasks = Path(f"/proc/{self.process.pid}/task")
        wait_for(
            "rsyslog to stop",
            lambda: all(") T " in stat.read_text() for stat in tasks.glob("*/stat")),
        )

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def messages(self) -> list[re.Match[str]]:
        """Return the messages that arrived, in their order. Each must be one of RFC 5424."""
        path = self.folder / "raw"
        # A killed rsyslog may leave a part of a line.
        lines = path.read_text("ascii").split("\n")[:-1] if path.exists() else []
        matches = [_MESSAGE.fullmatch(line) for line in lines]
        assert None not in matches, [line for line in lines if not _MESSAGE.fullmatch(line)]
        return [match for match in matches if match is not None]

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(message["text"]) for message in self.messages()]

    def ids(self) -> list[str]:
        return [record["id"] for record in self.records()]

    def _listens(self) -> bool:
        local = f" 0100007F:{self.port:04X} "
        return any(
            local in line and line.split()[3] == "0A"
            for line in Path("/proc/net/tcp").read_text().splitlines()
        )
