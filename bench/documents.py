"""docs/performance.md, and its chart."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import table
from bench.goals import GOALS
from bench.results import FILE, Results

_REPOSITORY = Path(__file__).parents[1]
_DOCUMENT = _REPOSITORY / "docs" / "performance.md"
_CHART = _REPOSITORY / "docs" / "performance.svg"
_METHOD = Path(__file__).parent / "method.md"
#: Debian's packages, and the packages of the environment of the bench.
_DEBIAN = ("wrk", "kea-dhcp4-server", "kea-ctrl-agent", "nginx", "libnginx-mod-nchan")
_PEERS = _REPOSITORY / ".venv" / "bench" / "bin" / "python"


def write(results: Results) -> None:
    """Writes both files. Raises CalledProcessError where the chart can't be drawn."""
    _DOCUMENT.write_text("\n".join(_lines(results)))
    subprocess.run([str(_PEERS), "-m", "bench.chart", str(FILE), str(_CHART)], cwd=_REPOSITORY, check=True)


def _lines(results: Results) -> Iterator[str]:
    yield "# Performance\n"
    yield "`make bench` measures the service and comparable programs, and writes this page.\n"
    yield from table.rows(GOALS, results)
    yield "\n![Each ratio as a share of its goal](performance.svg)\n"
    yield "## Growth\n"
    yield "The times are from one response to the next on one connection."
    yield "The exponent is 0 if the number of sessions has no effect, 1 if a figure is proportional to it.\n"
    yield from table.growth(results)
    yield f"\n{_METHOD.read_text()}"
    yield "## Where and when\n"
    yield from (f"- {line}" for line in _circumstances(results))
    yield "\n## See also\n"
    yield "- [Measurements](explanation/measurements.md): many clients, slow clients, webhooks"
    yield ""


def _circumstances(results: Results) -> Iterator[str]:
    days = sorted({run.at.date().isoformat() for run in results.runs.values()})
    yield f"Date: {' to '.join(dict.fromkeys((days[0], days[-1])))}."
    yield f"Machine: {_processor()}, {os.cpu_count()} cores, {_memory()} GiB, Linux {platform.release()}."
    yield f"Python {platform.python_version()}. Debian: {', '.join(map(_debian, _DEBIAN))}."
    packages = (*_installed(_PEERS, "dawos-agent"), *_installed(Path(sys.executable), *_OURS))
    yield f"PyPI: {', '.join(packages)}."


_OURS = ("flask", "gunicorn", "gevent", "msgspec", "requests")


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine()
    )


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30


def _debian(package: str) -> str:
    query = ["dpkg-query", "--show", "--showformat", "${Package} ${Version}", package]
    ended = subprocess.run(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return ended.stdout or f"{package} not installed"


def _installed(python: Path, *packages: str) -> list[str]:
    """The name and version of each package in an environment."""
    program = "import sys, importlib.metadata as m; print(*(m.version(name) for name in sys.argv[1:]))"
    ended = subprocess.run(
        [str(python), "-c", program, *packages], stdout=subprocess.PIPE, text=True, check=True
    )
    return [f"{name} {version}" for name, version in zip(packages, ended.stdout.split(), strict=True)]
