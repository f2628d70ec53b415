"""Debian's Prometheus: its programs, and a server with the configuration of `etc/prometheus`."""

import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from tests.support.debian import unpacked
from tests.support.stack import Api, free_port, wait_for

ETC = Path(__file__).parents[2] / "etc"
CONFIGURATION = "gateway-api.yml"

#: A sample's name and labels in the text format, such as `up{job="a"}`.
Series = str


def programs(folder: Path) -> Path:
    """Return the folder of `prometheus` and `promtool`. If they are not installed, unpack the package into
    `folder`: an installation might start a service."""
    installed = shutil.which("promtool")
    if installed and shutil.which("prometheus"):
        return Path(installed).parent
    return unpacked(folder, lambda: ["prometheus"]) / "usr" / "bin"


#: The time of the last scrape, by the address of the gateway.
_scraped: dict[str, float] = {}


def scrape(api: Api) -> requests.Response:
    """Return a new scrape: a worker keeps its last one for a second."""
    if (left := _scraped.get(api.url, -math.inf) + 1.2 - time.monotonic()) > 0:
        time.sleep(left)
    answer = api.send("GET", "/metrics", None)
    _scraped[api.url] = time.monotonic()
    assert answer.status_code == 200, answer.text
    return answer


def samples(api: Api) -> dict[Series, float]:
    """Return the samples of a scrape."""
    lines = [line for line in scrape(api).text.splitlines() if not line.startswith("#")]
    return {series: float(value) for series, value in (line.rsplit(" ", 1) for line in lines)}


def total(found: dict[Series, float], name: str, *labels: str) -> float:
    """Return the sum of a metric's samples that have all these labels, each such as `status="200"`."""
    return sum(
        value
        for series, value in found.items()
        if series.partition("{")[0] == name and all(label in series for label in labels)
    )


def configure(api: Api, folder: Path) -> Path:
    """Write the configuration of `etc/prometheus` to `folder`, for this stack and with short intervals."""
    shutil.copytree(ETC / "prometheus", folder, dirs_exist_ok=True)
    shutil.copy(api.environment["GATEWAY_CA"], folder / "gateway-api-ca.pem")
    path = folder / CONFIGURATION
    text, changed = re.subn(r"\blocalhost:8443\b", api.url.removeprefix("https://"), path.read_text())
    assert changed == 1
    text, changed = re.subn(r"(?<=_interval: )15s", "1s", text)
    assert changed == 2
    path.write_text(text.replace("scrape_timeout: 10s", "scrape_timeout: 1s"))
    return path


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session = requests.Session()
        self._session.trust_env = False

    def get(self, path: str, **query: str) -> Any:
        """Return the data of a response. Fails on a query with an error."""
        answer = self._session.get(f"{self._url}/api/v1/{path}", params=query, timeout=60)
        assert answer.status_code == 200, (query, answer.text)
        return answer.json()["data"]

    def query(self, expression: str) -> list[float]:
        """Return the values of an instant vector, now."""
        return [float(found["value"][1]) for found in self.get("query", query=expression)["result"]]

    def is_ready(self) -> bool:
        try:
            return self._session.get(f"{self._url}/-/ready", timeout=60).ok
        except requests.ConnectionError:
            return False


@contextmanager
def scraping(api: Api, programs: Path, folder: Path) -> Iterator[Prometheus]:
    """Run a Prometheus that has scraped the stack, and scrapes it each second until the end of the block."""
    configuration = configure(api, folder)
    address = f"127.0.0.1:{free_port()}"
    command = [
        *(str(programs / "prometheus"), f"--config.file={configuration}"),
        *(f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"})
    prometheus = Prometheus(f"http://{address}")

    def scraped() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        return prometheus.is_ready() and 1 in prometheus.query("up")

    try:
        wait_for("a scrape", scraped)
        yield prometheus
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
