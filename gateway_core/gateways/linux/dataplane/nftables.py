"""nftables tables that the gateway owns. Each table is loaded from a template, read back, compared and
repaired.

Another program may remove or change a table: many firewall scripts begin with `flush ruleset`. The tables
stay in the kernel when the core stops. Supported versions of nft(8): 1.0.6 to 1.1.
"""

import errno
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gateway_contract.core.health import FaultKind
from gateway_core.gateways.linux.dataplane.fault_register import FaultRegister, PlanePart
from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry
from gateway_core.gateways.linux.kernel.netlink import KernelError
from gateway_core.gateways.linux.kernel.watcher import RulesetEvents
from gateway_core.gateways.linux.program import ProgramFailed, run
from gateway_core.gateways.linux.templates import make_environment

#: Limits of a run of nft. A table of 64 trunks has some 100 kB.
_RUN_SECONDS, _MAX_OUTPUT_BYTES = 10.0, 1 << 22
#: Seconds between two checks, and from an event to a check: a foreign `flush ruleset` lasts no longer.
_CHECK_INTERVAL_SECONDS, _DEBOUNCE_SECONDS = 3.0, 0.2
#: The type of an object of a table that cannot be read.
UNREADABLE_TYPE = "unreadable"
#: The fields that the gateway reads.
_REQUIRED_FIELDS: dict[str, dict[str, type]] = {
    "counter": {"name": str, "packets": int},
    "set": {"name": str},
    "rule": {"expr": list},
}
#: Fields of objects that change without a change of the rules.
_VOLATILE_FIELDS = ("handle", "packets", "bytes")
_OBJECT_READER = EntryReader(
    "nftables",
    "object",
    "the objects in a table of the gateway",
    "the table counts as changed, unless it was so when the core loaded it",
)
_templates = make_environment(__package__)


class _Listing(msgspec.Struct):
    nftables: list[Any]


class Nft:
    """Runner of the program nft(8). Thread-safe. All methods raise KernelError if nft fails or does not
    reply."""

    def __init__(self, program: str = "nft") -> None:
        self._program = program

    def load(self, step: str, commands: str) -> None:
        """Run nft commands in one transaction. `step` is the verb and the object for the error text, such as
        `load the table inet gateway`."""
        # nft joins its arguments. One argument may have 128 KiB (execve(2)).
        self._run(step, *commands.splitlines(keepends=True))

    def list_table(self, name: str, *options: str) -> list[dict[str, Any]] | None:
        """Return the objects of a table (libnftables-json(5)), or None if the table does not exist. `options`
        are options of nft, such as `-t`, which leaves out the elements of sets. An unreadable object is
        returned with the type UNREADABLE_TYPE."""
        step = f"list the table {name}"
        try:
            output = self._run(step, "-j", *options, f"list table {name}")
        except KernelError as error:
            if error.code == errno.ENOENT:
                return None
            raise
        try:
            objects = msgspec.json.decode(output, type=_Listing).nftables
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise KernelError(step, "nft printed no JSON") from error
        # An UNREADABLE_TYPE object differs from any rule of the gateway: the table is not as it was loaded.
        return _OBJECT_READER.read(
            objects, _check_object, instead=lambda _: {UNREADABLE_TYPE: {}}, name=repr, place=step
        )

    def _run(self, step: str, *arguments: str) -> bytes:
        try:
            ended = run([self._program, *arguments], seconds=_RUN_SECONDS, max_bytes=_MAX_OUTPUT_BYTES)
        except ProgramFailed as error:
            raise KernelError(step, error) from error
        if ended.status:
            # Below the first line are the commands.
            lines = ended.errors.decode(errors="replace").splitlines() or [f"status {ended.status}"]
            is_absent = "No such file or directory" in lines[0]
            reason = lines[0].rpartition("Error: ")[2]
            raise KernelError(step, reason, errno.ENOENT if is_absent else None)
        return ended.output


def _check_object(entry: Any) -> dict[str, Any]:
    """Check and return an object from the listing of a table. Raises UnreadableEntry if a field that the
    gateway reads is missing or has the wrong type."""
    if not isinstance(entry, dict) or not all(isinstance(each, dict) for each in entry.values()):
        raise UnreadableEntry("an object of nft has no type")
    for type, fields in entry.items():
        for name, expected in _REQUIRED_FIELDS.get(type, {}).items():
            if not isinstance(fields.get(name), expected):
                raise UnreadableEntry(f"a {type} of nft has no {name}")
        if not isinstance(fields.get("elem", []), list):
            raise UnreadableEntry("the elements of a set of nft are no list")
    return entry


class OwnTable(ABC):
    """nftables table that the gateway loads, and repairs when another program changes the table.
    `fault_register` contains the repairs and the fault of the table. `wall` returns epoch seconds.
    Thread-safe."""

    def __init__(self, name: str, wall: Callable[[], float], nft: Nft | None) -> None:
        self.fault_register = FaultRegister(wall)
        self._part = PlanePart(FaultKind.FIREWALL, name)
        self._name = name
        self._template = _templates.get_template(f"{name.replace(' ', '_')}.nft.j2")
        self._nft = nft or Nft()
        self._lock = threading.Lock()
        #: The objects of the table after the last load; None if it is not loaded.
        self._loaded: list[Any] | None = None
        #: Packets by the name of the counter, at the last reading.
        self._packets: Mapping[str, int] = {}
        #: Commands that remove the table, whether there is one or not.
        self._removal = f"add table {name}\ndelete table {name}\n"

    def check(self) -> None:
        """Compare the table in the kernel with the table as it was loaded, and repair any difference."""
        with self._lock:
            self._attempt(self._check)

    @abstractmethod
    def _renew(self) -> None:
        """Replace the whole table in the kernel. Raises KernelError if the table cannot be replaced."""

    def _count(self, packets: Mapping[str, int]) -> None:  # noqa: B027 - a table may have no counters
        """Add packets to the totals of the table. `packets` is the number of new packets since the last
        reading, by counter name."""

    def _check(self) -> None:
        if not self._is_intact():
            self._repair()

    def _is_intact(self) -> bool:
        objects = self._read()
        return objects is not None and objects == self._loaded

    def _repair(self) -> None:
        was_loaded = self._loaded is not None
        self._renew()
        if was_loaded:
            self.fault_register.add_repairs([self._part])

    def _attempt(self, act: Callable[[], None]) -> None:
        """Call the function `act`. If `act` raises KernelError, record the error as a fault; the next `check`
        tries again."""
        try:
            act()
            self.fault_register.set_faults(None, {})
        except KernelError as error:
            self.fault_register.set_faults(None, {self._part: error})
        self.fault_register.report()

    def _load(self, *, remove_first: bool, **context: object) -> None:
        """Load the table from its template with the variables `context`. If `remove_first` is True, remove
        the existing table in the same transaction. Raises KernelError if nft fails."""
        self._loaded = None
        self._run((self._removal if remove_first else "") + self._template.render(context))
        self._loaded = self._read()

    def _run(self, commands: str) -> None:
        self._nft.load(f"load the table {self._name}", commands)

    def _read(self) -> list[Any] | None:
        """Read the table and count the packets of its counters. Return the objects of the table without
        volatile fields, or None if the table does not exist."""
        objects = self._nft.list_table(self._name, "-t")
        counters = [each["counter"] for each in objects or () if "counter" in each]
        before, self._packets = self._packets, {each["name"]: each["packets"] for each in counters}
        # A counter of a new table begins at zero.
        self._count(
            {
                name: now - earlier if now >= (earlier := before.get(name, 0)) else now
                for name, now in self._packets.items()
            }
        )
        if objects is None:
            return None
        return [
            {
                kind: {name: value for name, value in fields.items() if name not in _VOLATILE_FIELDS}
                for kind, fields in each.items()
            }
            for each in objects
            if "metainfo" not in each
        ]


def keep_tables(tables: Sequence[OwnTable], events: RulesetEvents) -> None:
    """Check the tables at once, every _CHECK_INTERVAL_SECONDS, and after each change of the nftables ruleset.
    Return when `events` is closed."""
    for _ in events.follow(_CHECK_INTERVAL_SECONDS, _DEBOUNCE_SECONDS):
        for table in tables:
            table.check()
