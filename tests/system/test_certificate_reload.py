"""A certificate or a key that cannot be used: a reload keeps the former pair, and a start ends."""

import os
import shutil
import signal
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway_api.cli import certificates
from tests.support.stack import (
    PATIENCE,
    Api,
    children,
    core_of,
    make_state,
    running_api,
    running_stack,
    wait_for,
)
from tests.unit.gateway_api.test_certificate import expire

Health = tuple[str, str]


@dataclass
class Served:
    """A gateway, the arbiter of its API, and the files of its pair."""

    api: Api
    arbiter: int
    certificate: Path
    key: Path
    log: Path

    def reload(self) -> None:
        """Reload the API, and wait until only new workers are left."""
        former = set(children(self.arbiter))
        os.kill(self.arbiter, signal.SIGHUP)
        wait_for("the end of the former workers", lambda: not former & set(children(self.arbiter)))

    def kill_worker(self) -> None:
        (former,) = children(self.arbiter)
        os.kill(former, signal.SIGKILL)
        wait_for("another worker", lambda: set(children(self.arbiter)) - {former})

    def presented(self) -> str:
        """The certificate that a client gets from a new connection."""
        host, _, port = self.api.url.removeprefix("https://").partition(":")
        return ssl.get_server_certificate((host, int(port)), timeout=PATIENCE)

    def health(self) -> Health:
        found = self.api.get("/system/health/detail")["dependencies"]
        (one,) = (each for each in found if each["name"] == "certificate")
        return one["state"], one["message"]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    state = tmp_path / "state"
    with running_stack(state, sessions=1, WORKERS=1) as (api, process):
        (arbiter,) = set(children(process.pid)) - {core_of(process)}
        # The client trusts the first pair, whatever becomes of the file.
        api.session.verify = shutil.copy(state / "certificate.pem", tmp_path / "trusted.pem")
        yield Served(api, arbiter, state / "certificate.pem", state / "key.pem", state / "log")


def use_another_key(certificate: Path) -> None:
    other = certificate.parent / "other"
    other.mkdir()
    certificates.ensure(other / "certificate.pem", other / "key.pem", "localhost")
    shutil.copy(other / "key.pem", certificate.with_name("key.pem"))


BROKEN: dict[str, Callable[[Path], object]] = {
    "the key of another": use_another_key,
    "no certificate": lambda certificate: certificate.write_text("-----BEGIN CERTIFICATE-----\n"),
    "no file": Path.unlink,
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_reload_with_a_bad_pair_keeps_the_former_one_also_for_workers_that_start_later(
    served: Served, broken: str
) -> None:
    before = served.presented()
    BROKEN[broken](served.certificate)
    served.reload()
    assert served.presented() == before
    served.kill_worker()
    assert served.presented() == before
    state, message = served.health()
    assert state == "degraded"
    assert message.startswith("The last reload kept the former TLS certificate")
    said = "the reload keeps the former TLS certificate: GATEWAY_API_CERTIFICATE and GATEWAY_API_KEY, "
    assert served.log.read_text().count(said) == 1


def test_the_reload_after_it_serves_a_good_pair_and_the_log_tells_of_an_expired_one(served: Served) -> None:
    before = served.presented()
    served.certificate.unlink()
    served.reload()
    served.key.unlink()
    certificates.ensure(served.certificate, served.key, "localhost")
    served.reload()
    assert served.presented() == served.certificate.read_text() != before
    served.api.session.verify = str(served.certificate)
    assert served.health()[0] == "ok"
    expire(served.certificate, served.key)
    served.reload()
    said = f"the TLS certificate {served.certificate} expired at "
    wait_for("the line", lambda: served.log.read_text().count(said) == 1)


def test_a_start_with_a_bad_pair_ends_with_the_reason(tmp_path: Path) -> None:
    make_state(tmp_path)
    (tmp_path / "secret").write_text("0" * 64)
    use_another_key(tmp_path / "certificate.pem")
    said = "cannot start the gateway API: GATEWAY_API_CERTIFICATE and GATEWAY_API_KEY, .*KEY_VALUES_MISMATCH"
    with pytest.raises(AssertionError, match=said), running_api(tmp_path / "no-core", tmp_path):
        pass
