"""Load by wrk(1), Debian's 4.1.0: connections that send a request, wait for the response, and repeat."""

import http.client
import ssl
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

#: Seconds without a response, after which wrk counts a request as failed.
_TIMEOUT = 60
#: The times of the summary are in microseconds.
_SCRIPT = """
wrk.method = {method}
{headers}
local targets, formatted, turn = {{ {targets} }}, {{}}, 0
function init()
    for number, target in ipairs(targets) do
        formatted[number] = wrk.format(nil, target[1], nil, target[2])
    end
end
function request()
    turn = turn % #formatted + 1
    return formatted[turn]
end
{pause}
function done(summary, latency)
    local errors = summary.errors
    io.write(string.format("\\nsummary %d %d %d %d %d %d %d\\n", summary.requests, summary.duration,
        latency:percentile(50), latency:percentile(99), latency.max,
        errors.connect + errors.read + errors.write + errors.timeout, errors.status))
end
"""


class Failed(Exception):
    """A peer gave another response than the one that was to be measured."""


@dataclass(frozen=True)
class Target:
    """What is asked for. Paths and bodies are plain ASCII without brackets of Lua."""

    path: str
    body: str | None = None


@dataclass(frozen=True)
class Request:
    """The targets of all connections, in turn. `url` is `https://localhost:port`, or `http://127.0.0.1:port`
    without TLS."""

    url: str
    targets: tuple[Target, ...]
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    #: That of the server, where it speaks TLS.
    certificate: Path | None = None
    #: Whether some sessions may end before they are asked for.
    may_be_gone: bool = False
    #: Milliseconds between a response and the next request.
    pause: int = 0

    def probe(self) -> tuple[Mapping[str, str], bytes]:
        """Headers and body of one response. Raises Failed when it has another status, and SSLError when the
        server lacks TLS 1.3: wrk takes the newest version that it is offered."""
        target, connection = self.targets[0], self._connection()
        try:
            connection.request(self.method, target.path, target.body, dict(self.headers))
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status not in ((self.status, 404) if self.may_be_gone else (self.status,)):
            raise Failed(f"{target.path}: status {response.status} instead of {self.status}: {body[:200]!r}")
        return dict(response.headers), body

    def _connection(self) -> http.client.HTTPConnection:
        where = urlsplit(self.url)
        if not self.certificate:
            return http.client.HTTPConnection(str(where.hostname), where.port, timeout=_TIMEOUT)
        context = ssl.create_default_context(cafile=self.certificate)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return http.client.HTTPSConnection(str(where.hostname), where.port, timeout=_TIMEOUT, context=context)


@dataclass(frozen=True)
class Load:
    """Responses a second; the median, the 99th percentile and the maximum of their times, in seconds."""

    rate: float
    median: float
    p99: float
    most: float


def load(request: Request, connections: int, seconds: int) -> Load:
    """For so many seconds, or as long as a first response takes. Raises Failed when a request had no
    response, or one with an error status."""
    while True:
        found = _wrk(request, connections, seconds)
        # wrk leaves its last requests. Until they are done, they would be in the way of the next measurement.
        request.probe()
        if found:
            return found
        seconds *= 2


def _wrk(request: Request, connections: int, seconds: int) -> Load | None:
    """None when no response came in time."""
    with TemporaryDirectory() as folder:
        script = Path(folder) / "requests.lua"
        script.write_text(_script(request))
        ended = subprocess.run(
            [
                *("wrk", "--threads", "1", "--connections", str(connections)),
                *("--duration", f"{seconds}s", "--timeout", f"{_TIMEOUT}s"),
                *("--script", str(script), request.url),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    found = [line.split()[1:] for line in ended.stdout.splitlines() if line.startswith("summary ")]
    if ended.returncode or not found:
        raise Failed(f"wrk {request.url}: {ended.stdout}{ended.stderr}")
    count, duration, median, p99, most, broken, refused = map(int, found[0])
    if broken or (refused and not request.may_be_gone):
        raise Failed(f"{request.targets[0].path}: {broken + refused} of {count} requests failed")
    if not count:
        return None
    return Load(count / duration * 1e6, median / 1e6, p99 / 1e6, most / 1e6)


def _script(request: Request) -> str:
    def quoted(text: str | None) -> str:
        return "nil" if text is None else f"[==[{text}]==]"

    return _SCRIPT.format(
        method=quoted(request.method),
        headers="\n".join(f"wrk.headers[ {quoted(k)} ] = {quoted(v)}" for k, v in request.headers.items()),
        pause=f"function delay() return {request.pause} end" if request.pause else "",
        targets=", ".join(f"{{ {quoted(one.path)}, {quoted(one.body)} }}" for one in request.targets),
    )
