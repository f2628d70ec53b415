"""What the service says of itself: right across workers that come and go, and what Prometheus takes."""

import json
import os
import random
import re
import signal
import string
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from gateway_api.base.settings import Settings
from gateway_api.version import VERSION
from gateway_api.web import counters
from gateway_api.web.app import create_app
from gateway_api.web.services import UserProfileParts
from tests.support.prometheus import ETC, Series, configure, programs, samples, scraping, total
from tests.support.sse import Stream, listen, master_of, wait_for_workers, worker_of, workers_of
from tests.support.stack import Api, running_stack, wait_for

REQUESTS = "gateway_api_http_requests_total"
DURATIONS = "gateway_api_http_request_duration_seconds"
STREAMS = "gateway_api_sse_clients"
HEALTH = 'route="/api/v1/health"'
EVENTS = 'route="/api/v1/events/subscribers"'
OF_THE_CONTRACT = {"svc_active_sessions_total", "svc_vrf_steered_sessions", "svc_qos_sessions"}
KINDS = 3

DASHBOARD = json.loads((ETC / "grafana" / "gateway-api.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
RULES = ETC / "prometheus" / "gateway-api.rules.yml"

Stack = tuple[Api, "subprocess.Popen[bytes]"]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One of this module alone: nobody else's requests are counted."""
    with running_stack(tmp_path_factory.mktemp("metrics") / "state", sessions=100) as running:
        yield running


@pytest.fixture(scope="module")
def lonely(stack: Stack) -> Api:
    """The API of it."""
    return stack[0]


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


def wait_for_no_streams(api: Api) -> None:
    """A departed client is noticed at the second write: the first is answered with a reset."""
    ids = iter([session["id"] for session in api.get("/subscribers")["sessions"]])

    def none() -> bool:
        api.send("DELETE", f"/subscribers/{next(ids)}")
        time.sleep(0.1)
        return samples(api)[STREAMS] == 0

    wait_for("all to have gone", none)


def counts(found: dict[Series, float]) -> dict[Series, float]:
    """What must never go down."""
    return {series: value for series, value in found.items() if series.startswith((REQUESTS, DURATIONS))}


# What is counted


def test_a_request_is_counted_by_method_route_and_status(lonely: Api) -> None:
    lonely.token("operator")
    before = samples(lonely)
    # A scrape is counted when it has been answered: here the one before.
    wanted = Counter(labelled("GET", "/metrics", 200))
    for method, path, role, labels in (
        ("GET", "/health", None, ("GET", "/api/v1/health", 200)),
        ("HEAD", "/health", None, ("HEAD", "/api/v1/health", 200)),
        ("GET", "/health?x=1", None, ("GET", "/api/v1/health", 200)),
        ("GET", "/subscribers?x=1", "operator", ("GET", "/api/v1/subscribers", 400)),
        ("GET", "/subscribers", None, ("GET", "/api/v1/subscribers", 401)),
        ("GET", "/subscribers/7", "operator", ("GET", "/api/v1/subscribers/{id}", 200)),
        ("GET", "/subscribers/abc", "operator", ("GET", "/api/v1/subscribers/{id}", 404)),
        ("DELETE", "/subscribers/7", "operator", ("DELETE", "/api/v1/subscribers/{id}", 403)),
        ("POST", "/auth/login", None, ("POST", "/api/v1/auth/login", 400)),
        ("GET", "/metrics", None, ("GET", "/metrics", 200)),
        ("GET", "/nope", None, ("other", "unmatched", 404)),
        ("PATCH", "/health", None, ("other", "unmatched", 405)),
    ):
        lonely.send(method, path, role)
        wanted.update(labelled(*labels))
    after = samples(lonely)
    assert {series: after[series] - before.get(series, 0) for series in wanted} == wanted


def labelled(method: str, route: str, status: int) -> tuple[Series, Series]:
    """The series that count a request."""
    return (
        f'{REQUESTS}{{method="{method}",route="{route}",status="{status}"}}',
        f'{DURATIONS}_count{{method="{method}",route="{route}"}}',
    )


def test_every_request_is_in_the_histogram(lonely: Api) -> None:
    for path in ("/health", "/nope", "/subscribers/1"):
        lonely.send("GET", path)
    found = samples(lonely)
    assert total(found, REQUESTS) > 3
    assert total(found, f"{DURATIONS}_count") == total(found, REQUESTS)
    assert total(found, f"{DURATIONS}_bucket", 'le="+Inf"') == total(found, REQUESTS)


def test_what_clients_make_up_makes_no_series(lonely: Api) -> None:
    def ask(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(100):
            word = "".join(dice.choices(string.ascii_uppercase, k=dice.randint(3, 12)))
            lonely.send("GET", f"/{word}/{word}")
            lonely.send(word, "/health")
            lonely.send(word, f"/{word}")
            lonely.send("GET", f"/subscribers/{word}")
            lonely.send("GET", f"/webhooks/{word}")

    ask(1)
    before = samples(lonely)
    ask(2)
    after = samples(lonely)
    # But that of the scrape before.
    assert {series for series in after if "/metrics" not in series} == {
        series for series in before if "/metrics" not in series
    }
    assert total(after, REQUESTS, 'route="unmatched"') == total(before, REQUESTS, 'route="unmatched"') + 300


def test_an_open_stream_is_no_slow_request(lonely: Api) -> None:
    before = samples(lonely)
    with listen(lonely), listen(lonely):
        wait_for("two clients", lambda: samples(lonely)[STREAMS] == 2)
        during = samples(lonely)
        time.sleep(3)
    wait_for_no_streams(lonely)
    after = samples(lonely)
    assert total(during, REQUESTS, EVENTS, 'status="200"') - total(before, REQUESTS, EVENTS) == 2
    assert total(after, REQUESTS, EVENTS) == total(during, REQUESTS, EVENTS)
    # Less than the two were open.
    assert total(after, f"{DURATIONS}_sum", EVENTS) - total(before, f"{DURATIONS}_sum", EVENTS) < 5


def test_the_version_is_a_label(lonely: Api) -> None:
    assert samples(lonely)[f'gateway_api_build_info{{version="{VERSION}"}}'] == 1


# The text


def test_every_metric_is_ours_and_has_help_and_type_once(lonely: Api) -> None:
    health(lonely)
    text = lonely.send("GET", "/metrics", None).text
    helped = re.findall(r"^# HELP (\S+) \S", text, re.MULTILINE)
    typed = re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", text, re.MULTILINE)
    assert helped == typed
    assert len(set(helped)) == len(helped)
    assert {name for name in helped if not name.startswith("gateway_")} == OF_THE_CONTRACT
    for series in samples(lonely):
        name = series.partition("{")[0]
        assert {name, re.sub("_(bucket|sum|count)$", "", name)} & set(helped), series


def test_every_metric_is_in_the_reference(lonely: Api) -> None:
    health(lonely)
    text = lonely.send("GET", "/metrics", None).text
    reference = (ETC.parent / "docs/reference/metrics.md").read_text()
    for name in re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE):
        assert re.search(rf"^\| [^|]*`{name}`[^|]* \|[^|]*\| .+ \|$", reference, re.MULTILINE), name


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0", "*/*", "text/html"])
def test_the_format_is_0_0_4_whatever_is_asked_for(lonely: Api, accept: str) -> None:
    answer = lonely.send("GET", "/metrics", None, headers={"Accept": accept})
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "# EOF" not in answer.text


def test_without_gunicorn_there_are_the_same_metrics(lonely: Api, tmp_path: Path) -> None:
    settings = Settings(core_socket=tmp_path / "none", runtime=tmp_path, state=tmp_path, secret=b"-" * 32)
    for _ in range(2):
        client = create_app(UserProfileParts.from_settings(settings)).test_client()
        assert client.get("/api/v1/system/version").status_code == 200
        text = client.get("/metrics").text
        assert f'{REQUESTS}{{method="GET",route="/api/v1/system/version",status="200"}} 1.0\n' in text
        assert f'{DURATIONS}_count{{method="GET",route="/api/v1/system/version"}} 1.0\n' in text
        assert f"{STREAMS} 0.0\n" in text
        assert "gateway_api_core_up 0.0\n" in text


def test_promtool_objects_to_the_contract_s_name_alone(lonely: Api, tools: Path) -> None:
    health(lonely)
    said = promtool(tools, "check", "metrics", input=lonely.send("GET", "/metrics", None).text)
    (finding,) = (said.stdout + said.stderr).splitlines()
    assert re.fullmatch('svc_active_sessions_total non-counter metrics should not .*"_total".*', finding)


# Rules, configuration and dashboard


def test_every_alert_fires_when_it_should_and_not_before(tools: Path) -> None:
    said = promtool(tools, "test", "rules", "alerts.yml", cwd=Path(__file__).parent)
    assert said.returncode == 0, said.stdout + said.stderr


def test_every_alert_has_a_test_a_severity_and_words() -> None:
    text = RULES.read_text()
    alerts = re.findall(r"- alert: (\w+)\n(.*?)(?=\n\n|\Z)", text, re.DOTALL)
    assert len(alerts) == text.count("alert:")
    tests = Path(__file__).with_name("alerts.yml").read_text()
    for name, rule in alerts:
        assert f"alertname: {name}\n        exp_alerts:" in tests
        assert re.search(r"severity: (critical|warning)\n", rule)
        assert "summary: " in rule
        assert "description: " in rule


def test_promtool_takes_the_configuration_and_its_rules(lonely: Api, tools: Path, tmp_path: Path) -> None:
    said = promtool(tools, "check", "config", str(configure(lonely, tmp_path)))
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"{RULES.read_text().count('alert:')} rules found" in said.stdout


def test_rules_and_dashboard_ask_for_what_there_is(lonely: Api) -> None:
    health(lonely)
    there = {series.partition("{")[0] for series in samples(lonely)}
    asked = set(re.findall(r"\b(?:gateway|svc)_\w+", "\n".join([*EXPRESSIONS, RULES.read_text()])))
    assert asked <= there
    assert asked >= OF_THE_CONTRACT


def test_the_dashboard_has_its_own_place_for_every_panel() -> None:
    places = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert places.isdisjoint(cells)
        assert max(x for x, _ in cells) < 24
        places |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.slow
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

        for _ in range(4):
            for _ in range(10):
                health(api)
            workers = workers_of(process)
            os.kill(workers[0], signal.SIGKILL)
            wait_for_workers(process, len(workers), {workers[0]})
        everything = [total(one_scrape(api), REQUESTS, HEALTH)]
        wait_for("all", lambda: prometheus.query(f"sum({REQUESTS}{{{HEALTH}}})") == everything)
        assert set(prometheus.query(f"resets({REQUESTS}[5m])")) == {0}
        assert set(prometheus.query(f"resets({DURATIONS}_count[5m])")) == {0}

        for expression in EXPRESSIONS:
            asked = expression.replace("$__rate_interval", "1m").replace("$instance", ".*")
            assert "$" not in asked
            wait_for(f"data for {asked}", lambda asked=asked: prometheus.query(asked), 10)

        (group,) = prometheus.get("rules")["groups"]
        assert len(group["rules"]) == RULES.read_text().count("alert:")
        assert {rule["health"] for rule in group["rules"]} == {"ok"}
        assert [rule["name"] for rule in group["rules"] if rule["state"] == "firing"] == []


# Workers that come and go


@pytest.mark.parametrize(
    ("taken", "lowest"), [([], 0), ([0], 1), ([1], 0), ([0, 1, 3], 2), ([2, 0, 1], 3), ([5], 0)]
)
def test_a_worker_gets_the_lowest_slot_that_nobody_has(taken: list[int], lowest: int) -> None:
    assert counters.lowest_free(taken) == lowest


@pytest.mark.slow
def test_20_killed_workers_take_no_answered_request_along(tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=10) as (api, process):
        found = samples(api)
        answered = total(found, REQUESTS, HEALTH)
        known: dict[Series, float] = {}
        for kill in range(20):
            for _ in range(10):
                health(api)
                answered += 1
            workers = workers_of(process)
            victim = workers[kill % len(workers)]
            os.kill(victim, signal.SIGKILL)
            wait_for_workers(process, len(workers), {victim})
            found = samples(api)
            assert total(found, REQUESTS, HEALTH) == answered
            assert total(found, f"{DURATIONS}_count", HEALTH) == answered
            assert [series for series, value in known.items() if found.get(series, 0) < value] == []
            known = counts(found)
        wait_for("the last worker's files", lambda: len(files(api)) == 2 * KINDS)


@pytest.mark.slow
def test_workers_killed_under_load_lose_no_answer_and_count_nothing_twice(tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=10) as (api, process):
        before = total(samples(api), REQUESTS, HEALTH)
        stop = threading.Event()
        answered, broken = [0] * 4, [0] * 4

        def ask(client: int) -> None:
            while not stop.is_set():
                try:
                    health(api)
                    answered[client] += 1
                except requests.RequestException:
                    broken[client] += 1

        clients = [threading.Thread(target=ask, args=(client,)) for client in range(4)]
        for client in clients:
            client.start()
        known: dict[Series, float] = {}
        kills = 0
        try:
            while kills < 20:
                workers = workers_of(process)
                os.kill(workers[0], signal.SIGKILL)
                kills += 1
                wait_for_workers(process, len(workers), {workers[0]})
                try:
                    found = samples(api)
                except requests.ConnectionError:
                    # On a connection to the one that was killed.
                    continue
                assert [series for series, value in known.items() if found.get(series, 0) < value] == []
                known = counts(found)
        finally:
            stop.set()
            for client in clients:
                client.join()
        found = samples(api)
        counted = total(found, REQUESTS, HEALTH) - before
        assert sum(answered) > 100
        assert sum(answered) <= counted <= sum(answered) + sum(broken)
        # A request that was cut between the two has no answer.
        assert abs(total(found, f"{DURATIONS}_count", HEALTH) - before - counted) <= sum(broken)
        wait_for("the last worker's files", lambda: len(files(api)) == 2 * KINDS)


@pytest.mark.slow
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
        wait_for_no_streams(Api(api.environment))


@pytest.mark.slow
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
        wait_for("the files of both", lambda: of_both_workers(api))


def of_both_workers(api: Api) -> bool:
    """Whether there are the files of two workers. Each makes them with its first request."""
    health(api)
    return len(files(api)) == 2 * KINDS


@pytest.mark.slow
def test_one_that_was_started_twice_leaves_the_files_of_the_first(tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=10) as (api, _):
        health(api)
        before = counts(samples(api))
        environment = {
            **os.environ,
            "GATEWAY_API_RUNTIME": str(tmp_path),
            "GATEWAY_API_STATE": str(tmp_path),
            "GATEWAY_API_BIND": "127.0.0.1:0",
            "GATEWAY_API_AUDIT": str(tmp_path / "audit"),
            "GATEWAY_API_CERTIFICATE": str(tmp_path / "certificate.pem"),
            "GATEWAY_API_KEY": str(tmp_path / "key.pem"),
        }
        gunicorn = str(Path(sys.executable).parent / "gunicorn")
        ended = subprocess.run(
            [gunicorn, "--config", "python:gateway_api.serving.users"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert "another process serves" in ended.stderr
        after = samples(api)
        assert [series for series, value in before.items() if after.get(series, 0) < value] == []
