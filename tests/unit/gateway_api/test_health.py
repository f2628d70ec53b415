"""What the API finds of its own dependencies: certificate, disk and hub."""

from pathlib import Path

import pytest

from gateway_api.auth.ledger import Ledger
from gateway_api.cli import certificates
from gateway_api.hub.interface import WebhookCounts
from gateway_api.web import health
from gateway_api.web.health import Host, check_ledger
from gateway_contract.base.certificate import read_expiry
from gateway_contract.base.errors import CoreAbsent, CoreUnavailable
from gateway_contract.core.health import Dependency
from tests.support.clocks import SteppedClock
from tests.support.ledger import lose

DAY = 86400
NOW = 1_795_271_513


def certificate(host: Host) -> Dependency:
    return host.check()[0]


def disk(**folders: Path) -> Dependency:
    return Host(None, folders).check()[1]


@pytest.mark.parametrize(
    ("days", "state", "said"),
    [(21, "ok", "21"), (20.9, "degraded", "20"), (0.1, "degraded", "0"), (0, "failed", "expired")],
)
def test_a_certificate_is_degraded_in_its_last_three_weeks_and_failed_after_its_end(
    tmp_path: Path, days: float, state: str, said: str
) -> None:
    found = certificate(Host(NOW + days * DAY, {"the audit log": tmp_path}, lambda: NOW))
    assert found.state == state
    assert said in found.message


def test_a_certificate_that_a_reload_kept_because_the_new_one_is_bad_is_degraded(tmp_path: Path) -> None:
    found = certificate(Host(NOW + 90 * DAY, {"the audit log": tmp_path}, lambda: NOW, is_former_pair=True))
    assert found.state == "degraded"
    assert found.message.startswith("The last reload kept the former TLS certificate")
    assert found.message.endswith("Days until the TLS certificate ends: 90.")


def test_the_end_of_a_certificate_is_that_of_its_file(tmp_path: Path) -> None:
    made, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificates.ensure(made, key, "localhost")
    end = read_expiry(made)
    assert end is not None
    left = Host(end, {"the audit log": tmp_path}).certificate_remaining
    assert left is not None
    assert certificates.VALIDITY_DAYS - 0.1 < left / DAY <= certificates.VALIDITY_DAYS
    # As the unit joins them. The leaf is the first.
    pair = tmp_path / "pair.pem"
    pair.write_bytes(made.read_bytes() + b"\n" + key.read_bytes())
    assert read_expiry(pair) == end


@pytest.mark.parametrize("text", [None, "", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"])
def test_a_certificate_that_cannot_be_read_is_unknown(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "certificate.pem"
    if text is not None:
        path.write_text(text)
    found = certificate(Host(read_expiry(path), {"the audit log": tmp_path}))
    assert (found.state, str(tmp_path) in found.message) == ("unknown", False)


def test_the_disk_is_that_of_the_folder_with_the_least_room(tmp_path: Path) -> None:
    # A folder that is missing counts as full.
    missing = disk(**{"the audit log": tmp_path, "the login ledger": tmp_path / "none"})
    assert (missing.state, missing.message) == (
        "failed",
        "The disk of the login ledger cannot be read: No such file or directory.",
    )


@pytest.mark.parametrize(("free", "state"), [(10, "ok"), (9.9, "degraded"), (1, "degraded"), (0.9, "failed")])
def test_a_disk_with_little_room_is_degraded_and_without_any_failed(
    tmp_path: Path, free: float, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Found:
        f_blocks, f_bavail, f_files, f_favail = 1000, 10 * free, 0, 0

    monkeypatch.setattr("os.statvfs", lambda _: Found)
    assert disk(one=tmp_path).state == state
    # The other limit of a file system: it has no more files.
    Found.f_blocks, Found.f_bavail, Found.f_files, Found.f_favail = 1000, 1000, 1000, 10 * free
    assert disk(one=tmp_path).state == state
    # A file system without a size, such as /proc, counts as free.
    Found.f_blocks, Found.f_bavail, Found.f_files = 0, 0, 0
    assert disk(one=tmp_path).message == "100 % of the disk of one is free."


@pytest.mark.parametrize(
    ("webhooks", "paused", "waiting", "state"),
    [(0, 0, 0, "ok"), (3, 0, 1000, "ok"), (3, 0, 1001, "degraded"), (3, 1, 0, "degraded")],
)
def test_the_hub_is_degraded_while_a_webhook_is_paused_or_many_messages_wait(
    webhooks: int, paused: int, waiting: int, state: str
) -> None:
    assert health.describe_hub(WebhookCounts(webhooks, paused, waiting, 0, 0, 0, 0)).state == state


def test_a_core_that_is_missing_is_told_from_one_that_hangs() -> None:
    absent = health.describe_core(CoreAbsent("cannot call at /run/core.sock"))[0]
    silent = health.describe_core(CoreUnavailable("cannot call at /run/core.sock"))[0]
    assert absent.state == silent.state == "failed"
    assert "No core daemon is running" in absent.message
    assert "does not reply" in silent.message
    assert "/run" not in absent.message + silent.message


def test_a_new_ledger_in_the_place_of_another_is_told_for_an_hour(
    tmp_path: Path, ledger: Ledger, clock: SteppedClock
) -> None:
    assert check_ledger(ledger).state == "ok"
    (tmp_path / "ledger.sqlite").unlink()
    clock.now = NOW
    told = check_ledger(ledger, clock)
    assert (told.state, told.message) == (
        "degraded",
        "The login ledger was damaged, removed or replaced, and a new one began at 2026-11-21T14:31:53Z:"
        " all users have to log in again.",
    )
    clock.now += 3600
    assert check_ledger(ledger, clock).state == "ok"


def test_a_ledger_that_cannot_be_opened_has_failed(tmp_path: Path, ledger: Ledger) -> None:
    lose(tmp_path / "ledger.sqlite")
    told = check_ledger(ledger)
    assert (told.state, told.message) == (
        "failed",
        "The login ledger cannot be read, so no token is accepted: unable to open database file.",
    )
