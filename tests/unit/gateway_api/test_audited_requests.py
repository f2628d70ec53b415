"""Requests of an application whose audit log fails, or that break off."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import pytest
from flask import Blueprint
from flask.testing import FlaskClient

from gateway_api.audit.record import AuditEntry
from gateway_api.base.settings import Settings
from gateway_api.web.access import Access
from gateway_api.web.app import create_app
from gateway_api.web.operation import operation
from gateway_api.web.records import Message
from gateway_api.web.services import UserServices
from gateway_contract.base.errors import AuditUnavailable
from gateway_contract.core.configuration import AccessReply, ApiUser, Role

FULL = AuditUnavailable("write", OSError("full"))


def fail(*_: Any) -> None:
    raise FULL


class Service:
    """An application with one operation for admins, whose audit log is in memory."""

    def __init__(self, folder: Path, method: str) -> None:
        self.parts = UserServices(Settings(folder / "none", folder, b"-" * 32, folder, audit=folder))
        access = AccessReply(True, (ApiUser("admin", Role.ADMIN, "1"),))
        self.parts.core.check_access = lambda _, **__: access  # type: ignore[method-assign]
        self.recorded: list[AuditEntry] = []
        self.made = 0
        self.view: Callable[[], object] = lambda: None
        self.parts.audit.add = self.recorded.append  # type: ignore[method-assign]
        app, rows = create_app(self.parts), Blueprint("rows", __name__)
        rows.add_url_rule("/change", "change", operation(Access.ADMIN)(self._change), methods=[method])
        app.register_blueprint(rows)
        self.client: FlaskClient = app.test_client()

    def _change(self) -> Message:
        self.made += 1
        self.view()
        return Message("done")

    def send(self, method: str) -> int:
        token = self.parts.tokens.issue("admin", Role.ADMIN, "1", 60)
        headers = {"Authorization": f"Bearer {token}"}
        return self.client.open("/change", method=method, headers=headers).status_code


@pytest.mark.parametrize(("method", "status", "made"), [("POST", 500, 0), ("GET", 200, 1)])
def test_while_the_audit_log_cannot_be_written_an_admin_changes_nothing_and_reads_everything(
    tmp_path: Path, method: str, status: int, made: int
) -> None:
    service = Service(tmp_path, method)
    service.parts.audit.check = fail  # type: ignore[method-assign]
    assert (service.send(method), service.made) == (status, made)


def test_a_change_whose_record_cannot_be_written_is_answered_and_its_record_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(tmp_path, "POST")
    service.parts.audit.add = fail  # type: ignore[method-assign]
    assert (service.send("POST"), service.made) == (200, 1)
    (line,) = (each for each in caplog.records if each.levelno == logging.CRITICAL)
    assert "not in the audit log" in line.getMessage()
    assert '"action":"rows.change"' in str(vars(line))


def test_a_change_that_broke_off_is_kept_as_unanswered(tmp_path: Path) -> None:
    def stop() -> None:
        raise gevent.GreenletExit

    service = Service(tmp_path, "POST")
    service.view = stop
    with pytest.raises(gevent.GreenletExit):
        service.send("POST")
    (record,) = service.recorded
    assert (record.user, record.action, record.status) == ("admin", "rows.change", None)
    assert record.result == "unanswered"
