"""Metrics across workers that come and go, and what Prometheus makes of them."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.prometheus import ETC, Series, configure, programs, samples, scraping, total
from tests.support.sse import Stream, listen, master_of, wait_for_workers, worker_of, workers_of
from tests.support.stack import Api, running_stack, wait_for

DURATIONS = "gateway_api_http_request_duration_seconds"
REQUESTS = f"{DURATIONS}_count"
STREAMS = "gateway_api_sse_clients"
HEALTH = 'route="/api/v1/health"'
KINDS = 4

DASHBOARD = json.loads((ETC / "grafana" / "gateway-api.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
RULES = ETC / "prometheus" / "gateway-api.rules.yml"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One of this module alone."""
    with running_stack(tmp_path_factory.mktemp("metrics") / "state", sessions=100) as (running, _):
        yield running


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `promtool` and `prometheus`."""
    return programs(tmp_path_factory.mktemp("prometheus"))


def promtool(tools: Path, *arguments: str, **more: Any) -> "subprocess.CompletedProcess[str]":
    command = [str(tools / "promtool"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **more)


def health(api: Api) -> None:
    """One request, on a connection of its own: any worker may get it."""
    answer = requests.get(
        f"{api.url}/api/v1/health",
        verify=api.environment["GATEWAY_CA"],
        headers={"Connection": "close"},
        timeout=10,
    )
    assert answer.status_code == 200


def files(api: Api) -> list[str]:
    """Of what the workers count."""
    folder = Path(api.environment["GATEWAY_CA"]).parent / "metrics"
    return sorted(path.name for path in folder.iterdir())


def one_scrape(api: Api) -> dict[Series, float]:
    """On a connection of its own, which no kill has cut."""
    return samples(Api(api.environment))


def counts(found: dict[Series, float]) -> dict[Series, float]:
    """What must never go down."""
    return {series: value for series, value in found.items() if series.startswith(DURATIONS)}


def test_promtool_objects_to_the_contract_s_name_alone(api: Api, tools: Path) -> None:
    health(api)
    said = promtool(tools, "check", "metrics", input=api.send("GET", "/metrics", None).text)
    (finding,) = (said.stdout + said.stderr).splitlines()
    assert re.fullmatch('svc_active_sessions_total non-counter metrics should not .*"_total".*', finding)


def test_every_alert_fires_when_it_should_and_not_before(tools: Path) -> None:
    said = promtool(tools, "test", "rules", "alerts.yml", cwd=Path(__file__).parent)
    assert said.returncode == 0, said.stdout + said.stderr


def test_promtool_takes_the_configuration_and_its_rules(api: Api, tools: Path, tmp_path: Path) -> None:
    said = promtool(tools, "check", "config", str(configure(api, tmp_path)))
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"{RULES.read_text().count('alert:')} rules found" in said.stdout


def test_a_prometheus_scrapes_it_and_has_data_for_every_panel(tools: Path, tmp_path: Path) -> None:
    with (
        running_stack(tmp_path / "state", sessions=100) as (api, process),
        listen(api),
        scraping(api, tools, tmp_path) as prometheus,
    ):
        (target,) = prometheus.get("targets")["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")
        assert target["scrapeUrl"] == f"{api.url}/metrics"
        wait_for("sessions", lambda: prometheus.query("svc_active_sessions_total") == [100])
        assert prometheus.query(STREAMS) == [1]

        before = total(one_scrape(api), REQUESTS, HEALTH)
        for _ in range(4):
            for _ in range(10):
                health(api)
            workers = workers_of(process)
            os.kill(workers[0], signal.SIGKILL)
            wait_for_workers(process, len(workers), {workers[0]})
        wait_for("each request once", lambda: total(one_scrape(api), REQUESTS, HEALTH) == before + 40)
        everything = [before + 40]
        wait_for("all", lambda: prometheus.query(f"sum({REQUESTS}{{{HEALTH}}})") == everything)
        assert set(prometheus.query(f"resets({REQUESTS}[5m])")) == {0}

        for expression in EXPRESSIONS:
            asked = expression.replace("$__rate_interval", "1m").replace("$instance", ".*")
            assert "$" not in asked
            wait_for(f"data for {asked}", lambda asked=asked: prometheus.query(asked), 10)

        (group,) = prometheus.get("rules")["groups"]
        assert len(group["rules"]) == RULES.read_text().count("alert:")
        assert {rule["health"] for rule in group["rules"]} == {"ok"}
        assert [rule["name"] for rule in group["rules"] if rule["state"] == "firing"] == []


def test_the_streams_of_a_killed_worker_are_none(tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=10) as (api, process):
        workers = workers_of(process)
        streams: list[Stream] = []
        try:
            while len(streams) < 20 or len({worker_of(stream, workers) for stream in streams}) < 2:
                streams.append(listen(api))
            wait_for("all of them", lambda: samples(api)[STREAMS] == len(streams))
            victim = workers[0]
            left = sum(worker_of(stream, workers) != victim for stream in streams)
            os.kill(victim, signal.SIGKILL)
            wait_for("those of the other worker", lambda: one_scrape(api).get(STREAMS) == left)
            wait_for_workers(process, len(workers), {victim})
            assert one_scrape(api)[STREAMS] == left
        finally:
            for stream in streams:
                stream.close()


def test_a_reload_keeps_what_was_counted_and_a_new_start_does_not(tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=10) as (api, process):
        for _ in range(20):
            health(api)
        with listen(api):
            wait_for("a client", lambda: samples(api)[STREAMS] == 1)
            before = counts(samples(api))
            for _ in range(3):
                old = set(workers_of(process))
                os.kill(master_of(process), signal.SIGHUP)
                wait_for_workers(process, 2, old)
                wait_for("the old ones to go", lambda old=old: old.isdisjoint(workers_of(process)))
                after = one_scrape(api)
                assert [series for series, value in before.items() if after.get(series, 0) < value] == []
                before = counts(after)
        assert one_scrape(api)[STREAMS] == 0
        health_before = total(before, REQUESTS, HEALTH)
        assert health_before >= 20
        # Beside each worker a new one, for a moment.
        assert len(files(api)) <= 4 * KINDS
    with running_stack(tmp_path, sessions=10) as (api, _):
        assert total(samples(api), REQUESTS, HEALTH) < health_before
        wait_for("the files of both", lambda: len(files(api)) == 2 * KINDS)
