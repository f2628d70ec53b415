"""The consumer of `etc/examples/fleet_history.py`, with a log of what it applies:
`python -m tests.support.fleet_consumer follow --nats URL --database DATABASE`.

The table `applied` gets a row for each event and each snapshot, in the transaction that applies it. If the
variable FLEET_TIMES is set, this file gets a line for each message after its commit: the subject, the id of
the event, and the monotonic time.
"""

import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Any

from nats.aio.msg import Msg

_PROGRAM = Path(__file__).parents[2] / "etc" / "examples" / "fleet_history.py"
_SCHEMA = """CREATE TABLE IF NOT EXISTS applied (
    number {serial}, gateway TEXT, boot TEXT, sequence BIGINT, reason TEXT, dropped BIGINT,
    former_boot TEXT, former_sequence BIGINT)"""
_ADD = """INSERT INTO applied (gateway, boot, sequence, reason, dropped, former_boot, former_sequence)
    VALUES (:gateway, :boot, :sequence, :reason, :dropped, :former_boot, :former_sequence)"""


def load_program() -> Any:
    """Return the module of the example."""
    spec = importlib.util.spec_from_file_location("fleet_history", _PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fleet_history"] = module
    spec.loader.exec_module(module)
    return module


program = load_program()


class LoggedHistory(program.History):  # type: ignore[misc]
    """History that logs what it applies."""

    def __init__(self, database: Any) -> None:
        super().__init__(database)
        serial = "BIGSERIAL" if database.is_postgresql else "INTEGER PRIMARY KEY AUTOINCREMENT"
        self.execute(_SCHEMA.format(serial=serial))
        self.commit()
        times = os.environ.get("FLEET_TIMES")
        self._times = Path(times).open("a") if times else None  # noqa: SIM115

    def add(self, messages: list[Msg]) -> None:
        super().add(messages)
        if self._times is not None:
            now = time.monotonic()
            for message in messages:
                event = (message.headers or {}).get("Gateway-Event", "-")
                self._times.write(f"{message.subject} {event} {now}\n")
            self._times.flush()

    def _add_events(self, name: str, gateway: Any) -> None:
        before = gateway.sequence
        super()._add_events(name, gateway)
        # Each applied event has moved the gateway by one.
        for sequence in range(before + 1, gateway.sequence + 1):
            self._log(name, gateway.boot, sequence)

    def _add_part(self, name: str, part: dict[str, Any], at: int) -> None:
        gateway = self.gateways.get(name)
        before = ("", 0) if gateway is None else (gateway.boot, gateway.sequence)
        super()._add_part(name, part, at)
        if self.gateways[name] is not gateway and part["is_last"]:
            after = self.gateways[name]
            self._log(name, after.boot, after.sequence, part["reason"], part["dropped_events"], *before)

    def _log(
        self, name: str, boot: str, sequence: int, reason: str | None = None, dropped: int = 0,
        former_boot: str | None = None, former_sequence: int | None = None,
    ) -> None:  # fmt: skip
        if self._times is not None:
            # A measurement: without statements that a consumer does not need.
            return
        self.execute(
            _ADD, gateway=name, boot=boot, sequence=sequence, reason=reason, dropped=dropped,
            former_boot=former_boot, former_sequence=former_sequence,
        )  # fmt: skip


if __name__ == "__main__":
    program.History = LoggedHistory
    sys.exit(program.main())
