"""The configuration's workflow against a model of it: 2,000 sequences of what callers, time and restarts do.

The model keeps whole documents in plain Python. What the schema says, it knows only of the paths and values
in the vocabulary below, and from there: nothing of the code under test is in it.
"""

import copy
import math
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from gateway_api.base.errors import GatewayApiError, Invalid, NotFound, Stale, StepFailed
from gateway_api.core.configuration.edit import OperationRefused
from gateway_api.core.configuration.running import RunningConfiguration
from gateway_api.core.configuration.store import Commit, ConfigurationStore
from gateway_api.core.configuration.workspace import ChangeRequest, Rendered, Workspace
from gateway_api.core.records.clock import Clock
from gateway_api.wire.configuration import Configuration
from gateway_api.wire.core.configuration import Edit as WireEdit
from gateway_api.wire.varlink.protocol import ErrorReply

Document = dict[str, Any]

MASK = "********"
HASHES = [f"$2b$04${letter * 53}" for letter in "ABC"]
SECRETS = [*HASHES, "s3cret-one", "s3cret-two", "s3cret-sue"]

#: Whatever syncs is fast where nothing has a disk below it.
MEMORY = Path("/dev/shm")
FOLDERS = MEMORY if os.access(MEMORY, os.W_OK) else None

ARCHIVED = 49
#: After so many commits, the oldest are gone.
MANY = ARCHIVED + 3
BITS = {"50mbit": 50_000_000, "100mbit": 100_000_000, "200mbit": 200_000_000, "1gbit": 1_000_000_000}

#: The lists whose items go by a key, and those of texts.
KEYS = {
    "api.users": "username",
    "bgp.neighbors": "address",
    "demux.vlan_profiles": "name",
    "subscribers.local": "username",
}
TEXTS = ("interfaces.trunks", "interfaces.uplinks", "demux.trunks")

REQUIRED = {
    "": ["system", "interfaces", "radius", "cgnat", "qos", "demux", "api"],
    "system": ["hostname"],
    "interfaces": ["trunks", "uplinks"],
    "cgnat": ["enabled", "vrf_name", "vrf_table", "handoff_interface", "handoff_gateway", "source_range"],
    "qos": ["default_down", "default_up"],
    "demux": ["trunks", "vlan_profiles", "rate_limits", "idle_timeout"],
    "demux.rate_limits": ["vlans_per_second", "burst", "max_vlans"],
    "demux.vlan_profiles.*": ["name", "type", "vlan_range", "outer_vlan_range", "overhead_profile"],
    "api": ["enabled"],
    "api.users.*": ["username", "password_hash", "role"],
    "bgp": ["as_number", "router_id"],
    "bgp.neighbors.*": ["address", "remote_as"],
    "subscribers.local.*": ["username", "password"],
}

ADA = {"username": "ada", "password_hash": HASHES[0], "role": "admin"}
BOB = {"username": "bob", "password_hash": HASHES[1], "role": "operator"}
PPPOE = {
    "name": "pppoe",
    "type": "pppoe",
    "vlan_range": "1000-1999",
    "outer_vlan_range": None,
    "overhead_profile": "pppoe_ethernet",
}
NEIGHBORS = [{"address": f"10.255.0.{n}", "remote_as": 64513} for n in (2, 6)]
#: Small, for many of them to be looked at.
FACTORY: Document = {
    "system": {"hostname": "bng1"},
    "interfaces": {"trunks": ["trunk0", "trunk1"], "uplinks": ["uplink0"]},
    "radius": {"secret": "s3cret-one"},
    "cgnat": {
        "enabled": True,
        "vrf_name": "cgnat",
        "vrf_table": 100,
        "handoff_interface": "uplink0",
        "handoff_gateway": "10.255.1.2",
        "source_range": "100.64.0.0/10",
    },
    "qos": {"default_down": "100mbit", "default_up": "20mbit"},
    "demux": {
        "trunks": ["trunk0"],
        "vlan_profiles": [],
        "rate_limits": {"vlans_per_second": 200, "burst": 1000, "max_vlans": 16384},
        "idle_timeout": 300,
    },
    "bgp": {"as_number": 64512, "router_id": "10.255.0.1", "neighbors": NEIGHBORS[:1]},
    "api": {"enabled": True, "users": [ADA, BOB]},
}


ACTIONS: tuple[Literal["set"], Literal["delete"]] = ("set", "delete")


@dataclass(frozen=True)
class Edit:
    """What somebody asks for; with `stored`, what the value becomes, and `wrong`, why it's refused whatever
    the candidate is."""

    action: Literal["set", "delete"]
    path: str
    value: Any = None
    stored: Any = None
    wrong: str | None = None

    def operation(self) -> WireEdit:
        return WireEdit(self.action, self.path, copy.deepcopy(self.value))


def sets(*values: tuple[str, Any]) -> list[Edit]:
    return [Edit("set", path, value, value) for path, value in values]


def sets_text(*values: tuple[str, str, Any]) -> list[Edit]:
    return [Edit("set", path, text, stored) for path, text, stored in values]


def refused(wrong: str, *values: tuple[str, Any]) -> list[Edit]:
    return [Edit("set", path, value, wrong=wrong) for path, value in values]


def deletes(*paths: str) -> list[Edit]:
    return [Edit("delete", path) for path in paths]


#: Most candidates that hold still do after one of these.
SOUND = [
    *sets(
        ("system.hostname", "bng2"),
        ("system.hostname", "bng3"),
        *(("qos.default_down", rate) for rate in BITS),
        ("qos", {"default_down": "50mbit", "default_up": "10mbit"}),
        ("cgnat.enabled", False),
        ("cgnat.handoff_interface", "trunk0"),
        ("demux.idle_timeout", 600),
        ("demux.vlan_profiles.pppoe", PPPOE),
        ("interfaces.trunks.trunk1", "trunk9"),
        ("interfaces.uplinks.1", "uplink1"),
        ("api.users.ada.password_hash", HASHES[2]),
        ("api.users.bob.role", "admin"),
        ("api.users", [BOB, ADA]),
        ('api.users."c.d"', {"password_hash": HASHES[1], "role": "admin"}),
        ("radius.secret", "s3cret-two"),
        ("radius.server", "10.0.0.5"),
        ("bgp", None),
        ("bgp.as_number", 64600),
        ("bgp.neighbors", NEIGHBORS),
        ("bgp.neighbors", NEIGHBORS[::-1]),
        ('bgp.neighbors."10.255.0.9"', {"address": "10.255.0.9", "remote_as": 64514}),
        ("subscribers.local.sue", {"username": "sue", "password": "s3cret-sue"}),
        ("subscribers", {}),
    ),
    *sets_text(
        ("cgnat.vrf_table", "101", 101),
        ("demux.idle_timeout", "450", 450),
        ("api.token_lifetime", "7200", 7200),
        ("bgp", "null", None),
    ),
    *deletes("bgp", "api.users.bob", "bgp.neighbors.0"),
]
SETS = [
    *sets(
        ("system.hostname", "bng1"),
        ("cgnat.handoff_interface", "uplink0"),
        ("interfaces.trunks.0", "trunk7"),
        ("interfaces.trunks.2", "trunk2"),
        ("interfaces.trunks.2", "trunk0"),
        ("interfaces.uplinks.uplink0", "trunk0"),
        ("interfaces.uplinks", []),
        ("demux.trunks", ["trunk0", "trunk1"]),
        ("cgnat.handoff_interface", "nowhere0"),
        ("cgnat.vrf_name", "uplink0"),
        ("demux.vlan_profiles.twin", {**PPPOE, "name": "twin"}),
        ("qos.default_up", "20mbit"),
        ("radius.secret", None),
        ("api.users.0.role", "operator"),
        ("api.users.0.username", "ada"),
        ("api.users.ada.role", "operator"),
        ("api.users.ada.role", "admin"),
        ("api.users.0", {**BOB, "role": "admin"}),
        ("api.users.1", {**BOB, "username": "eve"}),
        ("api.users.2", {"username": "fay", "role": "admin"}),
        ("api.users.2", {"password_hash": HASHES[2], "role": "admin"}),
        ("api.users.bob", ADA),
        ("api.users", []),
        ('bgp.neighbors."10.255.0.2".remote_as', 64999),
        ("bgp.neighbors.0.description", "edge"),
        ("subscribers.local.sue.ip_address", "100.64.0.9"),
        ("subscribers.local.0.password", "s3cret-one"),
    ),
    *sets_text(
        ("api.enabled", "false", False),
        ("cgnat.enabled", "TRUE", True),
        ("demux.idle_timeout", "300", 300),
        ("demux.trunks", '["trunk0"]', ["trunk0"]),
        ("api.users.eve.password_hash", HASHES[2], HASHES[2]),
        ("demux.rate_limits", '{"burst": 5}', {"burst": 5}),
        ("demux.rate_limits.burst", "2000", 2000),
        ('bgp.neighbors."10.255.0.9".remote_as', "64514", 64514),
    ),
]
REFUSED = [
    *refused(
        "invalid",
        ("system.hostname", 7),
        ("system.hostname", "not a name"),
        ("system.hostname", None),
        ("qos.default_down", "fast"),
        ("qos", "null"),
        ("radius.server", "null"),
        ("qos.default_up", "50"),
        ("cgnat.enabled", "yes"),
        ("cgnat.vrf_table", 254),
        ("demux.idle_timeout", "5 minutes"),
        ("demux.idle_timeout", True),
        ("demux.trunks", "trunk0"),
        ("interfaces.trunks.0", "no interface"),
        ("radius.secret", MASK),
        ("api.users.ada.password_hash", MASK),
        ("api.users.0.role", "root"),
        ("api.users", [ADA, ADA]),
        ('api.users."no name".role', "admin"),
        ("bgp.neighbors.core1.remote_as", 64513),
    ),
    *refused(
        "unknown",
        ("nonsense", 1),
        ("qos.burst", "1"),
        ("qos.0", "1"),
        ("qos", {"burst": "1"}),
        ("system.hostname.deep", "x"),
        ("interfaces.trunks.0.name", "x"),
        ("api.users.ada.shoe_size", 44),
    ),
    *refused("missing", ("bgp.neighbors", [{"remote_as": 64513}])),
    *(Edit(action, path, "1", wrong="path") for action in ACTIONS for path in ("", "qos..burst")),
]
DELETES = deletes(
    "system.hostname",
    "system.hostname.deep",
    "system",
    "qos",
    "qos.default_down",
    "qos.burst",
    "nonsense",
    "cgnat.handoff_interface",
    "demux.vlan_profiles.pppoe",
    "demux.vlan_profiles.0.type",
    "demux.trunks.0",
    "interfaces.trunks.trunk1",
    "interfaces.trunks.1",
    "interfaces.trunks.9",
    "interfaces.uplinks.uplink0",
    "radius.server",
    "radius.secret",
    "api.users.ada",
    "api.users.0",
    "api.users.2",
    "api.users.ada.username",
    "api.users.eve.password_hash",
    'api.users."c.d"',
    "bgp.router_id",
    "bgp.neighbors",
    'bgp.neighbors."10.255.0.2"',
    "subscribers.local.sue",
    "subscribers.local",
    "subscribers",
    "api.token_lifetime",
)


class No(Exception):
    """A refusal: its kind, and what it names."""


@dataclass(frozen=True)
class Revision:
    document: Document
    author: str
    comment: str | None
    committed_at: int

    @classmethod
    def of(cls, document: Document, commit: Commit) -> "Revision":
        return cls(document, commit.author, commit.comment, commit.committed_at)


class Model:
    """What a workspace promises. Its entity tags are the contents that they stand for."""

    def __init__(self, now: float) -> None:
        self.now = now
        #: So many seconds the wall clock is ahead of it: deadlines are shown and commits dated by that.
        self.ahead = 0
        self.running = Revision(FACTORY, "factory", None, int(now))
        self.candidate = FACTORY
        self.archive: list[Revision] = []
        self.deadline: int | None = None
        self.baseline: Document | None = None
        #: How many configurations came to run.
        self.runs = 1
        #: The services wouldn't take their files.
        self.refusing = False
        #: How often a configuration came back by itself, and how often one that the archive had lost.
        self.returned = self.returned_lost = 0

    def contents(self) -> str:
        return in_json([self.running.document, self.candidate])

    def edit(self, edits: Sequence[Edit], if_match: Sequence[str] | None) -> None:
        self._expect(if_match)
        made = copy.deepcopy(self.candidate)
        for number, edit in enumerate(edits):
            try:
                if edit.wrong in ("unknown", "path"):
                    raise No("invalid" if edit.wrong == "path" else "unknown")
                (_put if edit.action == "set" else _take)(made, edit)
            except No as no:
                raise No("Refused", number, edit.path, *no.args) from no
        self.candidate = made

    def discard(self, if_match: Sequence[str] | None) -> None:
        self._expect(if_match)
        self.candidate = self.running.document

    def rollback(self, revision: int, if_match: Sequence[str] | None) -> int:
        self._expect(if_match)
        self.candidate = self.archived(revision).document
        return len(differing(self.running.document, self.candidate))

    def compare(self, revision: int | None) -> list[str]:
        before = self.running if revision is None else self.archived(revision)
        return lines(before.document, self.candidate)

    def commit(
        self, author: str, comment: str | None, confirm_seconds: int | None, if_match: Sequence[str] | None
    ) -> tuple[int, str, str | None, int, int | None]:
        if self.return_if_due():
            raise No("Stale")
        self._expect(if_match)
        found = len(differing(self.running.document, self.candidate))
        waiting = self.deadline is not None
        deadline = None if confirm_seconds is None else math.ceil(self.now + confirm_seconds)
        if found:
            broken = rules_broken(self.candidate)
            if broken:
                raise No("Invalid", broken)
            before = self.running.document
            self._run(self.candidate, author, comment)
            self.baseline = self.baseline if waiting else before
            self.candidate, self.deadline = self.running.document, deadline
        elif waiting and deadline is not None:
            self.deadline = deadline
        now = self.running
        return found, now.author, now.comment, now.committed_at, self.shown_deadline()

    def shown_deadline(self) -> int | None:
        return None if self.deadline is None else self.deadline + self.ahead

    def confirm(self) -> None:
        self.return_if_due()
        if self.deadline is None:
            raise No("NothingToConfirm")
        self.deadline = None

    def return_if_due(self) -> bool:
        if self.deadline is None or self.now < self.deadline:
            return False
        staged = self.candidate if self.something_is_staged() else None
        assert self.baseline is not None
        lost = self.baseline not in [revision.document for revision in self.archive]
        self._run(self.baseline, "core", "not confirmed in time")
        self.returned, self.returned_lost = self.returned + 1, self.returned_lost + lost
        self.deadline = None
        self.candidate = self.running.document if staged is None else staged
        return True

    def something_is_staged(self) -> bool:
        return self.candidate != self.running.document

    def archived(self, revision: int) -> Revision:
        if not 1 <= revision <= len(self.archive):
            raise No("NotFound")
        return self.archive[revision - 1]

    def _expect(self, if_match: Sequence[str] | None) -> None:
        if if_match is not None and self.contents() not in if_match:
            raise No("Stale")

    def _run(self, document: Document, author: str, comment: str | None) -> None:
        if self.refusing:
            raise No("StepFailed")
        self.archive = [self.running, *self.archive][:ARCHIVED]
        self.running = Revision(document, author, comment, int(self.now) + self.ahead)
        self.runs += 1


def in_json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def segments(path: str) -> list[str | int]:
    found = re.findall(r'"[^"]+"|[^."]+', path)
    return [int(text) if text.isdigit() else text.strip('"') for text in found]


def joined(above: str, name: str) -> str:
    shown = name if re.fullmatch(r"[A-Za-z_][\w-]*", name) else f'"{name}"'
    return f"{above}.{shown}".lstrip(".")


def _place(items: list[Any], here: str, segment: str | int) -> int | None:
    """Where the item is that an index, a key or the text itself names."""
    if isinstance(segment, int):
        return segment if segment < len(items) else None
    names = [item[KEYS[here]] if here in KEYS else item for item in items]
    return names.index(segment) if segment in names else None


def _put(document: Document, edit: Edit) -> None:
    holder: Any = document
    here = ""
    *above, last = segments(edit.path)
    for segment in above:
        if isinstance(holder, dict):
            here = f"{here}.{segment}".lstrip(".")
            if holder.get(segment) is None:
                holder[segment] = [] if here in (*KEYS, *TEXTS) else {}
            holder = holder[segment]
        else:
            holder, here = _item(holder, here, segment), f"{here}.*"
    value = copy.deepcopy(edit.stored)
    if isinstance(holder, list):
        _put_item(holder, here, last, value, edit.wrong)
        return
    if edit.wrong:
        raise No(edit.wrong)
    if last == KEYS.get(here.removesuffix(".*")) and holder[last] != value:
        raise No("invalid")
    holder[last] = value


def _item(items: list[Any], here: str, segment: str | int) -> Any:
    """An item to change something in: one that a key names, and isn't there, is made."""
    place = _place(items, here, segment)
    if place is not None:
        return items[place]
    if isinstance(segment, int):
        raise No("unknown")
    items.append({KEYS[here]: segment})
    return items[-1]


def _put_item(items: list[Any], here: str, segment: str | int, value: Any, wrong: str | None) -> None:
    place = _place(items, here, segment)
    if place is None and (segment != len(items) if isinstance(segment, int) else here in TEXTS):
        raise No("invalid")
    if wrong:
        raise No(wrong)
    if here in KEYS:
        if isinstance(segment, str):
            value.setdefault(KEYS[here], segment)
        key = value.get(KEYS[here])
        if key is None:
            raise No("missing")
        others = [item[KEYS[here]] for number, item in enumerate(items) if number != place]
        if key in others or (isinstance(segment, str) and key != segment):
            raise No("invalid")
    if place is None:
        items.append(value)
    else:
        items[place] = value


def _take(document: Document, edit: Edit) -> None:
    holder: Any = document
    here = ""
    *above, last = segments(edit.path)
    for segment in above:
        place = _found(holder, here, segment)
        here = f"{here}.*" if isinstance(holder, list) else f"{here}.{segment}".lstrip(".")
        holder = holder[place]
    place = _found(holder, here, last)
    if here.endswith(".*") and last == KEYS.get(here.removesuffix(".*")):
        raise No("invalid")
    del holder[place]


def _found(holder: Any, here: str, segment: str | int) -> str | int:
    if isinstance(holder, list):
        place = _place(holder, here, segment)
        if place is not None:
            return place
    elif isinstance(holder, dict) and segment in holder:
        return segment
    raise No("absent")


def flat(value: Any, here: str = "", path: str = "") -> Iterator[tuple[str, str]]:
    """Every value and its path; `here` is the path with `*` for the items of a list."""
    if isinstance(value, dict) and value:
        for name, held in value.items():
            yield from flat(held, f"{here}.{name}".lstrip("."), joined(path, name))
    elif here in KEYS and value:
        for item in value:
            yield from flat(item, f"{here}.*", joined(path, item[KEYS[here]]))
    else:
        yield path, in_json(value)


@lru_cache(4096)
def flat_text(document: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The values of a document, by path; and the keys of the keyed lists, in their order."""
    read = msgspec.json.decode(document)
    orders = {}
    for path, key in KEYS.items():
        section, name = path.split(".")
        orders[path] = [item[key] for item in (read.get(section) or {}).get(name) or ()]
    return dict(flat(read)), orders


def differing(before: Document, after: Document) -> dict[str, tuple[str | None, str | None]]:
    """The values that aren't the same, by path, in the order of the paths."""
    (old, old_orders), (new, new_orders) = flat_text(in_json(before)), flat_text(in_json(after))
    found = {path: (old.get(path), new.get(path)) for path in sorted({**old, **new})}
    for path, was in old_orders.items():
        now = new_orders[path]
        if [key for key in was if key in now] != [key for key in now if key in was]:
            found[path] = in_json(was), in_json(now)
    return {path: values for path, values in sorted(found.items()) if values[0] != values[1]}


def lines(before: Document, after: Document) -> list[str]:
    found = []
    for path, values in differing(before, after).items():
        secret = path.endswith((".secret", ".password", ".password_hash"))
        for sign, value in zip("-+", values, strict=True):
            if value is not None:
                found.append(f"{sign} {path} = {MASK if secret and value != 'null' else value}")
    return found


def rules_broken(document: Document) -> frozenset[str]:
    """Where a candidate made of the vocabulary breaks a rule. What needs several values is only looked at
    where these are all there."""
    broken = set(_missing(document))
    for path in TEXTS:
        section, name = path.split(".")
        names = document.get(section, {}).get(name, ())
        if len(set(names)) < len(names):
            broken.add(path)
    for section, of_section in {"radius": _radius, "demux": _demux, "api": _api}.items():
        if not any(path.split(".")[0] == section for path in broken):
            broken.update(of_section(document[section]))
    return frozenset(broken or _references(document))


def _missing(value: Any, here: str = "", path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        absent = [name for name in REQUIRED.get(here, ()) if name not in value]
        yield from (f"{path}.{name}".lstrip(".") for name in absent)
        for name, held in value.items():
            yield from _missing(held, f"{here}.{name}".lstrip("."), f"{path}.{name}".lstrip("."))
    elif here in KEYS and value:
        for number, item in enumerate(value):
            yield from _missing(item, f"{here}.*", f"{path}.{number}")


def _radius(section: Document) -> Iterator[str]:
    if section.get("server") is not None and section.get("secret") is None:
        yield "radius.secret"


def _demux(section: Document) -> Iterator[str]:
    # In the vocabulary, all profiles but the same ones are apart.
    ranges = [profile["vlan_range"] for profile in section["vlan_profiles"]]
    for number, vlans in enumerate(ranges):
        if vlans in ranges[:number]:
            yield f"demux.vlan_profiles.{number}.vlan_range"


def _api(section: Document) -> Iterator[str]:
    if section["enabled"] and not any(user["role"] == "admin" for user in section.get("users", ())):
        yield "api.users"


def _references(document: Document) -> Iterator[str]:
    trunks, uplinks = (set(document["interfaces"][name]) for name in ("trunks", "uplinks"))
    cgnat = document["cgnat"]
    if trunks & uplinks:
        yield "interfaces.uplinks"
    if not set(document["demux"]["trunks"]) <= trunks:
        yield "demux.trunks"
    if cgnat["vrf_name"] in trunks | uplinks:
        yield "cgnat.vrf_name"
    if cgnat["enabled"] and cgnat["handoff_interface"] not in trunks | uplinks:
        yield "cgnat.handoff_interface"


FACTORY_SECTIONS = RunningConfiguration.of(FACTORY).sections

#: What happened in all sequences: each kind of outcome of each thing done, and what else is rare.
happened: Counter[str] = Counter()


class ModelClock(Clock):
    """As the model has it, in one boot."""

    def __init__(self, model: Model) -> None:
        super().__init__("boot")
        self._model = model

    def wall(self) -> float:
        return self._model.now + self._model.ahead

    def steady(self) -> float:
        return self._model.now - 1_600_000_000


class Pair:
    """A workspace in a folder of its own and a model, with the same done to both."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="configuration-", dir=FOLDERS)
        self.model = Model(now=1_700_000_000.25)
        #: The entity tag of all contents that were seen.
        self.etags: dict[str, str] = {}
        #: What these were when lines and files were last looked at: the contents, and how many ran.
        self.compared, self.looked_at = "", 0
        self._start(lambda: RunningConfiguration(copy.deepcopy(FACTORY), FACTORY_SECTIONS))

    def close(self) -> None:
        self.store.close()
        self.folder.cleanup()
        happened["returned"] += self.model.returned
        happened["returned to what the archive had lost"] += self.model.returned_lost

    def edit(self, edits: list[Edit], knows: str = "anything") -> None:
        contents, etags = self._if_match(knows)
        operations = [edit.operation() for edit in edits]
        self._both(
            "edit",
            lambda: self._is_current(self.workspace.edit(operations, ChangeRequest(if_match=etags)).etag),
            lambda: self.model.edit(edits, contents),
        )

    def discard(self, knows: str = "anything") -> None:
        contents, etags = self._if_match(knows)
        staged = self.model.compare(None)

        def discard() -> None:
            reply = self.workspace.discard(ChangeRequest(if_match=etags))
            self._is_current(reply.etag)
            assert reply.before.diff.splitlines() == staged

        self._both("discard", discard, lambda: self.model.discard(contents))

    def rollback(self, revision: int, knows: str) -> None:
        contents, etags = self._if_match(knows)
        staged = self.model.compare(None)

        def roll_back() -> int:
            reply = self.workspace.rollback(revision, ChangeRequest(if_match=etags))
            self._is_current(reply.etag)
            assert reply.before.diff.splitlines() == staged
            return reply.changes

        self._both("rollback", roll_back, lambda: self.model.rollback(revision, contents))

    def commit(
        self,
        comment: str | None,
        seconds: int | None = None,
        knows: str = "anything",
        refusing: bool = False,
    ) -> None:
        contents, etags = self._if_match(knows)
        author, was = f"{comment}'s", self.model.shown_deadline()
        staged, etag = self.model.compare(None), self.workspace.snapshot.etag

        def commit() -> tuple[int, str, str | None, int, int | None]:
            reply = self.workspace.commit(ChangeRequest(author, comment, etags), seconds)
            self._is_current(reply.etag)
            before = reply.before
            assert (before.diff.splitlines(), before.etag, before.confirm_deadline) == (staged, etag, was)
            return reply.changes, reply.author, reply.comment, reply.committed_at, reply.confirm_deadline

        self.model.refusing = refusing
        found = self._both("commit", commit, lambda: self.model.commit(author, comment, seconds, contents))
        self.model.refusing = False
        happened["nothing to commit"] += bool(found) and found[0] == 0
        happened["another deadline"] += bool(found) and was is not None and found[-1] not in (was, None)

    def compare_and_view(self, revision: int) -> None:
        self._both("compare", lambda: self._lines(revision), lambda: self.model.compare(revision))
        self._both("snapshot", lambda: self._archived(revision), lambda: self.model.archived(revision))

    def confirm(self) -> None:
        self._both("confirm", lambda: self.workspace.confirm(ChangeRequest()), self.model.confirm)

    def return_if_due(self, refusing: bool = False) -> None:
        self.model.refusing = refusing
        self._both("return", self.workspace.return_if_due, self.model.return_if_due)
        self.model.refusing = False

    def set_clock(self, ahead: int) -> None:
        happened["a clock set before a deadline"] += self.model.deadline is not None
        self.model.ahead = ahead

    def restart(self) -> None:
        happened["restart with a deadline"] += self.model.deadline is not None
        happened["restart with a candidate"] += self.model.something_is_staged()
        self.store.close()
        self._start(None)

    def look(self) -> None:
        """Fails unless all that can be seen of the workspace is as in the model."""
        self._look_at_view()
        self._look_at_etag()
        if self.compared != self.model.contents():
            self.compared = self.model.contents()
            self._look_at_lines()
        if self.looked_at != self.model.runs:
            self.looked_at = self.model.runs
            self._look_at_followed()
            self._look_at_archive()
            self._look_at_services()

    def _look_at_view(self) -> None:
        snapshot, model = self.workspace.snapshot, self.model
        assert Revision.of(snapshot.running.document, snapshot.commits[0]) == model.running
        assert snapshot.candidate == model.candidate
        # As text, for Python takes True for 1.
        assert in_json([snapshot.running.document, snapshot.candidate]) == model.contents()
        assert self.workspace.compare(None).confirm_deadline == model.shown_deadline()
        archived = self.workspace.snapshot.commits[1:]
        listed = [(commit.committed_at, commit.author, commit.comment) for commit in archived]
        assert listed == [(held.committed_at, held.author, held.comment) for held in model.archive]
        happened["the archive is full"] += len(listed) == ARCHIVED

    def _look_at_etag(self) -> None:
        etag = self.workspace.snapshot.etag
        assert self.etags.setdefault(self.model.contents(), etag) == etag
        assert len(set(self.etags.values())) == len(self.etags)

    def _look_at_lines(self) -> None:
        shown = self._lines(None)
        assert shown == self.model.compare(None)
        assert (shown != []) == self.model.something_is_staged()
        assert not any(secret in line for secret in SECRETS for line in shown)
        happened["a masked line"] += any(line.endswith(MASK) for line in shown)
        happened["another order"] += any(re.match(r"\+ [a-z.]+ = \[\"", line) for line in shown)

    def _look_at_followed(self) -> None:
        assert len(self.followed) == self.model.runs - self.runs_before_start
        assert not self.followed or self.followed[-1] is self.workspace.snapshot.running.sections

    def _look_at_archive(self) -> None:
        archive = self.model.archive
        assert [self._archived(number + 1) for number in range(len(archive))] == archive
        # Besides those that count, and the one that may come back: what the last commits that did or
        # didn't come to run have left, until the next.
        assert len(list(Path(self.folder.name, "revisions").iterdir())) <= 1 + len(archive) + 1 + 2

    def _look_at_services(self) -> None:
        sections = self.workspace.snapshot.running.sections
        assert self.applied == ({"default_down": str(sections.qos.default_down)}, sections)
        assert sections.qos.default_down == BITS[self.model.running.document["qos"]["default_down"]]

    def _start(self, factory: Callable[[], RunningConfiguration] | None) -> None:
        self.store = ConfigurationStore(Path(self.folder.name))
        clock = ModelClock(self.model)
        self.workspace = Workspace(self.store, factory or _no_factory, clock, self)
        self.workspace.apply_running()
        self.runs_before_start = self.model.runs
        self.compared, self.looked_at = "", 0
        self.followed: list[Configuration] = []
        self.workspace.follow(self.followed.append)

    def render(self, configuration: Configuration) -> Rendered:
        """As the services, whose check refuses some."""
        if self.model.refusing and self.model.runs % 2:
            raise StepFailed("check the services' files", "they are refused")
        return {"default_down": str(configuration.qos.default_down)}

    def apply(self, rendered: Rendered, configuration: Configuration) -> None:
        """As the services: they refuse where the check does not."""
        if self.model.refusing:
            raise StepFailed("reload a service", "it refuses its files")
        self.applied = rendered, configuration

    def resume(self, configuration: Configuration) -> None:
        """As the services."""
        self.apply(self.render(configuration), configuration)

    def _both(self, what: str, of_workspace: Callable[[], Any], of_model: Callable[[], Any]) -> Any:
        """What came of it where it was done."""
        expected, got = self._outcome(of_model), self._outcome(of_workspace)
        assert got == expected
        kind, *details = expected
        happened[" ".join([what, kind, *(details[2:] if kind == "Refused" else [])])] += 1
        return details[0] if kind == "done" else None

    def _outcome(self, do: Callable[[], Any]) -> tuple[Any, ...]:
        try:
            return "done", do()
        except No as no:
            return no.args
        except OperationRefused as error:
            reason = error.reason
            code = reason.problems[0].code if isinstance(reason, Invalid) else "absent"
            return "Refused", error.number, error.path, code
        except Invalid as error:
            return "Invalid", frozenset(problem.path for problem in error.problems)
        except Stale as error:
            self._is_current(error.etag)
            return ("Stale",)
        except ErrorReply as error:
            return (error.name.rpartition(".")[2],)
        except (NotFound, StepFailed) as error:
            return (type(error).__name__,)

    def _is_current(self, etag: str) -> None:
        assert etag == self.workspace.snapshot.etag

    def _if_match(self, knows: str) -> tuple[list[str] | None, list[str] | None]:
        """As the model wants it, and as the workspace does."""
        if knows == "anything":
            return None, None
        now = self.model.contents()
        seen = [contents for contents in self.etags if contents != now][-2:]
        contents = {"now": [now], "more": [*seen, now], "before": seen, "nothing": []}[knows]
        return contents, [self.etags[held] for held in contents]

    def _lines(self, revision: int | None) -> list[str]:
        found = self.workspace.compare(revision)
        self._is_current(found.etag)
        return found.diff.splitlines()

    def _archived(self, revision: int) -> Revision:
        commit, document = self.workspace.archived(revision)
        return Revision.of(document, commit)


def _no_factory() -> RunningConfiguration:
    raise GatewayApiError("a workspace that has a configuration doesn't begin with another")


EVERY_EDIT = [*SOUND, *SETS, *REFUSED, *DELETES]
EDIT = st.sampled_from(EVERY_EDIT)
SOUND_EDIT = st.sampled_from(SOUND)
#: What a caller knows who sends If-Match: nothing is sent, the contents as they are, or others.
KNOWS = st.sampled_from(["anything", "anything", "anything", "anything", "now", "more", "before", "nothing"])
SECONDS = st.sampled_from([None, None, 1, 5, 60])
SELDOM = st.sampled_from([False] * 4 + [True])


class Workflow(RuleBasedStateMachine):
    """Sequences of what may happen. Most rules do more than one thing: hypothesis leaves some rules out of
    each sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()

    def teardown(self) -> None:
        self.pair.close()

    # Only many commits fill an archive, and they take long: few sequences begin so.
    @initialize(
        history=st.lists(st.tuples(SOUND_EDIT, SECONDS), min_size=1, max_size=3),
        often=st.sampled_from([False] * 40 + [True]),
    )
    def begin(self, history: list[tuple[Edit, int | None]], often: bool) -> None:
        for edit, seconds in history:
            self.pair.edit([edit])
            self.pair.commit("history", seconds)
            self.time_passes("", "")
        if often:
            for number in range(MANY):
                self.pair.edit(sets(("system.hostname", f"bng-{number}")))
                self.pair.commit("often", 60)
            # By now the archive has lost what is to come back.
            self.time_passes("to the deadline", "")

    @rule(edits=st.lists(EDIT, min_size=1, max_size=3), knows=KNOWS)
    def edit(self, edits: list[Edit], knows: str) -> None:
        self.pair.edit(edits, knows)

    @rule(comment=st.sampled_from([None, "why"]), seconds=SECONDS, knows=KNOWS)
    def commit(self, comment: str | None, seconds: int | None, knows: str) -> None:
        self.pair.commit(comment, seconds, knows)

    @rule(edits=st.lists(SOUND_EDIT, min_size=1, max_size=2), seconds=SECONDS, refusing=SELDOM)
    def edit_and_commit(self, edits: list[Edit], seconds: int | None, refusing: bool) -> None:
        self.pair.edit(edits)
        self.pair.commit("as well", seconds, refusing=refusing)

    @rule(edit=SOUND_EDIT | EDIT, seconds=SECONDS)
    def start_over_and_commit(self, edit: Edit, seconds: int | None) -> None:
        self.pair.discard()
        self.pair.edit([edit])
        self.pair.commit("alone", seconds)

    @rule(which=st.sampled_from(["newest", "oldest", "-1", "0", "beyond"]), knows=KNOWS, commit=st.booleans())
    def rollback(self, which: str, knows: str, commit: bool) -> None:
        self.pair.rollback(self._revision(which), knows)
        if commit:
            self.pair.commit("back")

    @rule(knows=KNOWS)
    def discard(self, knows: str) -> None:
        self.pair.discard(knows)

    @rule(which=st.sampled_from(["newest", "oldest", "-1", "0", "beyond"]))
    def compare_and_view(self, which: str) -> None:
        self.pair.compare_and_view(self._revision(which))

    @rule()
    def confirm(self) -> None:
        self.pair.confirm()

    @rule(
        until=st.sampled_from(["", "just before the deadline", "to the deadline"]),
        then=st.sampled_from(["", "return", "return in vain"]),
    )
    def time_passes(self, until: str, then: str) -> None:
        model = self.pair.model
        model.now += 0.5
        if until and model.deadline is not None:
            model.now = max(model.now, model.deadline - (until != "to the deadline") / 4)
        if then:
            self.pair.return_if_due(refusing=then == "return in vain")

    @rule(ahead=st.sampled_from([0, -86_400, 3_600, 86_400]))
    def set_clock(self, ahead: int) -> None:
        self.pair.set_clock(ahead)

    @rule(again=st.booleans())
    def restart(self, again: bool) -> None:
        self.pair.restart()
        if again:
            self.pair.return_if_due()

    @invariant()
    def all_is_as_in_the_model(self) -> None:
        self.pair.look()

    def _revision(self, which: str) -> int:
        count = len(self.pair.model.archive)
        named = {"newest": 1, "oldest": count, "beyond": count + 1}
        return named[which] if which in named else int(which)


#: An item or more of all that there may be.
FULL = sets(
    ("interfaces.trunks", ["trunk0", "trunk1", "trunk2"]),
    ("demux.vlan_profiles", [PPPOE]),
    ("radius", {"server": "10.0.0.5", "secret": "s3cret-two"}),
    ("api.users", [ADA, {**BOB, "username": "eve"}, {**BOB, "username": "c.d"}, BOB]),
    ("api.token_lifetime", 600),
    ("bgp.neighbors", [*NEIGHBORS, {"address": "10.255.0.9", "remote_as": 64513}]),
    ("subscribers.local.sue", {"username": "sue", "password": "s3cret-sue", "ip_address": None}),
)
EMPTY = [*deletes("interfaces", "demux", "radius", "bgp", "api"), *sets(("subscribers", {}))]


@pytest.mark.parametrize("before", [[], FULL, EMPTY], ids=["factory", "full", "empty"])
def test_each_edit_alone_does_as_in_the_model(before: list[Edit]) -> None:
    for edit in EVERY_EDIT:
        with closing(Pair()) as pair:
            for edits in (before, [edit]):
                pair.edit(edits)
                pair.look()
                pair.commit("alone")
                pair.look()


#: Without these, the sequences would prove little.
AT_LEAST = {
    "edit done": 1500,
    "edit Refused absent": 60,
    "edit Refused invalid": 60,
    "edit Refused missing": 5,
    "edit Refused unknown": 20,
    "edit Stale": 60,
    "commit done": 1500,
    "commit Invalid": 80,
    "commit Stale": 60,
    "commit StepFailed": 40,
    "nothing to commit": 300,
    "another deadline": 80,
    "confirm done": 60,
    "confirm NothingToConfirm": 200,
    "returned": 30,
    "returned to what the archive had lost": 3,
    "return StepFailed": 1,
    "rollback done": 100,
    "rollback NotFound": 100,
    "rollback Stale": 50,
    "discard done": 300,
    "discard Stale": 50,
    "compare done": 100,
    "compare NotFound": 100,
    "snapshot done": 100,
    "snapshot NotFound": 100,
    "restart with a candidate": 40,
    "restart with a deadline": 60,
    "a clock set before a deadline": 60,
    "the archive is full": 40,
    "a masked line": 100,
    "another order": 60,
}


@pytest.mark.slow
def test_a_workspace_does_as_its_model_in_2000_sequences() -> None:
    happened.clear()
    thorough = settings(
        max_examples=2000,
        stateful_step_count=12,
        database=None,
        # All but the explanation of failures, for which every step would be traced.
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Workflow, settings=thorough)
    seldom = {what: happened[what] for what, least in AT_LEAST.items() if happened[what] < least}
    assert not seldom
