"""What the service says of itself in the text format of Prometheus."""

import json
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from gateway_contract.version import VERSION
from tests.support.prometheus import ETC, Series, samples, total
from tests.support.sse import listen
from tests.support.stack import Api, running_stack, wait_for

DURATIONS = "gateway_api_http_request_duration_seconds"
REQUESTS = f"{DURATIONS}_count"
BY_STATUS = "gateway_api_http_request_total"
STREAMS = "gateway_api_sse_clients"
EVENTS = 'route="/api/v1/events/subscribers"'
OF_THE_CONTRACT = {"svc_active_sessions_total", "svc_vrf_steered_sessions", "svc_qos_sessions"}

DASHBOARD = json.loads((ETC / "grafana" / "gateway-api.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
RULES = ETC / "prometheus" / "gateway-api.rules.yml"


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One of this module alone: no other requests are counted."""
    with running_stack(tmp_path_factory.mktemp("metrics") / "state", sessions=100) as (running, _):
        yield running


# What is counted


def test_a_request_is_counted_by_method_route_and_status(lonely: Api) -> None:
    lonely.token("operator")
    before = samples(lonely)
    # A scrape is counted when it has been answered: here the one before.
    wanted = Counter(labelled("GET", "/metrics", 200))
    for method, path, role, labels in (
        ("GET", "/health", None, ("GET", "/api/v1/health", 200)),
        ("HEAD", "/health?x=1", None, ("HEAD", "/api/v1/health", 200)),
        ("GET", "/subscribers?x=1", "operator", ("GET", "/api/v1/subscribers", 400)),
        ("GET", "/subscribers", None, ("GET", "/api/v1/subscribers", 401)),
        ("GET", "/subscribers/7", "operator", ("GET", "/api/v1/subscribers/{id}", 200)),
        ("DELETE", "/subscribers/7", "operator", ("DELETE", "/api/v1/subscribers/{id}", 403)),
        ("GET", "/metrics", None, ("GET", "/metrics", 200)),
        ("GET", "/nope", None, ("other", "unmatched", 404)),
        ("PATCH", "/health", None, ("other", "unmatched", 405)),
    ):
        lonely.send(method, path, role)
        wanted.update(labelled(*labels))
    after = samples(lonely)
    assert {series: after[series] - before.get(series, 0) for series in wanted} == wanted
    assert total(after, BY_STATUS) == total(after, REQUESTS) > 3
    assert total(after, f"{DURATIONS}_bucket", 'le="+Inf"') == total(after, REQUESTS)


def labelled(method: str, route: str, status: int) -> tuple[Series, ...]:
    """The series that count a request."""
    labels = f'{{method="{method}",route="{route}",status="{status}"}}'
    return REQUESTS + labels, f'{BY_STATUS}{{method="{method}",status="{status}"}}'


def test_a_request_that_ends_before_its_view_has_a_duration(lonely: Api) -> None:
    moved, *_ = labelled("other", "unmatched", 308)
    before = samples(lonely).get(moved, 0)
    answer = lonely.session.get(f"{lonely.url}/docs", allow_redirects=False, timeout=60)
    assert answer.status_code == 308
    assert samples(lonely)[moved] == before + 1


def test_what_clients_make_up_makes_no_series(lonely: Api) -> None:
    def ask(word: str) -> None:
        for method, path in (("GET", f"/{word}"), (word, "/health"), (word, f"/{word}")):
            lonely.send(method, path)
        lonely.send("GET", f"/subscribers/{word}")
        lonely.send("GET", f"/webhooks/{word}")

    ask("BREW")
    before = samples(lonely)
    ask("POUR")
    after = samples(lonely)
    # But that of the scrape before.
    assert {series for series in after if "/metrics" not in series} == {
        series for series in before if "/metrics" not in series
    }
    assert total(after, REQUESTS, 'route="unmatched"') == total(before, REQUESTS, 'route="unmatched"') + 3


def test_an_open_stream_is_counted_once_and_is_no_slow_request(lonely: Api) -> None:
    before = samples(lonely)
    with listen(lonely), listen(lonely):
        wait_for("two clients", lambda: samples(lonely)[STREAMS] == 2)
        during = samples(lonely)
    assert total(during, REQUESTS, EVENTS, 'status="200"') - total(before, REQUESTS, EVENTS) == 2
    ids = iter([session["id"] for session in lonely.get("/subscribers")["sessions"]])

    def none() -> bool:
        # A departed client is noticed at the second write: the first is answered with a reset.
        lonely.send("DELETE", f"/subscribers/{next(ids)}")
        return samples(lonely)[STREAMS] == 0

    wait_for("both to have gone", none)
    after = samples(lonely)
    # An ended stream counts no second time, with a duration of its own.
    assert total(after, REQUESTS, EVENTS) == total(during, REQUESTS, EVENTS)
    assert total(after, f"{DURATIONS}_sum", EVENTS) == total(during, f"{DURATIONS}_sum", EVENTS)


# The text


def test_every_metric_is_ours_and_has_help_and_type_once(lonely: Api) -> None:
    answer = lonely.send("GET", "/metrics", None, headers={"Accept": "application/openmetrics-text"})
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    text = answer.text
    assert "# EOF" not in text
    helped = re.findall(r"^# HELP (\S+) \S", text, re.MULTILINE)
    typed = re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)$", text, re.MULTILINE)
    assert helped == typed
    assert len(set(helped)) == len(helped)
    assert {name for name in helped if not name.startswith("gateway_")} == OF_THE_CONTRACT
    reference = (ETC.parent / "docs/reference/metrics.md").read_text()
    for name in helped:
        assert re.search(rf"^\| [^|]*`{name}`[^|]* \|[^|]*\| .+ \|$", reference, re.MULTILINE), name
    assert f'gateway_api_build_info{{version="{VERSION}"}}' in samples(lonely)
    for series in samples(lonely):
        name = series.partition("{")[0]
        assert {name, re.sub("_(bucket|sum|count)$", "", name)} & set(helped), series


# Rules, configuration and dashboard


def test_rules_and_dashboard_ask_for_what_there_is(lonely: Api) -> None:
    there = {series.partition("{")[0] for series in samples(lonely)}
    asked = set(re.findall(r"\b(?:gateway|svc)_\w+", "\n".join([*EXPRESSIONS, RULES.read_text()])))
    assert asked <= there
    assert asked >= OF_THE_CONTRACT
