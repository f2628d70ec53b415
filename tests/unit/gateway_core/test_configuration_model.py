"""The workflow of the configuration beside a model of it: sequences of what callers, time and restarts do.

The model keeps whole documents, and edits them without the code under test. For the rules of a commit and the
lines of a difference, it asks the code that `test_configuration` and `test_configuration_documents` cover.
"""

import copy
import json
import math
import os
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import pytest

from gateway_contract.base.errors import Invalid, Stale, StepFailed
from gateway_contract.configuration import Configuration
from gateway_contract.core.configuration import Edit as WireEdit
from gateway_contract.varlink.protocol import ErrorReply
from gateway_core.configuration.documents import OperationRefused, compare, format_diff
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.configuration.store import Commit, ConfigurationStore
from gateway_core.configuration.workspace import ChangeRequest, RenderedFiles, Workspace
from tests.support.clocks import NOW
from tests.support.core_clock import StillClock
from tests.support.documents import FACTORY as FACTORY_FILE

Document = dict[str, Any]

MASK = "********"
HASHES = [f"$2b$04${letter * 53}" for letter in "ABC"]
ARCHIVED = 49
SECRETS = [*HASHES, "s3cret-one", "s3cret-two", "s3cret-sue"]

#: The lists whose items have a key, and those of texts.
KEYS = {
    "api.users": "username",
    "bgp.neighbors": "address",
    "demux.vlan_profiles": "name",
    "subscribers.local": "username",
}
TEXTS = ("interfaces.trunks", "interfaces.uplinks", "demux.trunks")

ADA = {"username": "ada", "password_hash": HASHES[0], "role": "admin"}
BOB = {"username": "bob", "password_hash": HASHES[1], "role": "operator"}
SUE = {"username": "sue", "password": "s3cret-sue"}
PPPOE = {
    "name": "pppoe",
    "type": "pppoe",
    "vlan_range": "1000-1999",
    "outer_vlan_range": None,
    "overhead_profile": "pppoe_ethernet",
}
NEIGHBORS = [{"address": f"10.255.0.{n}", "remote_as": 64513} for n in (2, 6)]
#: Short, for many of them to be compared.
FACTORY: Document = {
    **json.loads(FACTORY_FILE.read_text()),
    "radius": {"secret": "s3cret-one"},
    "bgp": {"as_number": 64512, "router_id": "10.255.0.1", "neighbors": NEIGHBORS[:1]},
    "api": {"enabled": True, "users": [ADA, BOB]},
}
FACTORY["demux"] |= {"trunks": ["trunk0"], "vlan_profiles": []}
FACTORY_SECTIONS = RunningConfiguration.of(FACTORY).sections


ACTIONS: tuple[Literal["set"], Literal["delete"]] = ("set", "delete")


class Edit(NamedTuple):
    """An edit. `stored` is what its value becomes, `wrong` why it is refused whatever the candidate is."""

    action: Literal["set", "delete"]
    path: str
    value: Any = None
    stored: Any = None
    wrong: str | None = None


def sets(*values: tuple[Any, ...]) -> list[Edit]:
    """Of a path, a value, and what becomes of it if that is another one."""
    return [Edit("set", path, value, stored[0] if stored else value) for path, value, *stored in values]


def refused(wrong: str, *values: tuple[str, Any]) -> list[Edit]:
    return [Edit("set", path, value, wrong=wrong) for path, value in values]


def deletes(*paths: str) -> list[Edit]:
    return [Edit("delete", path) for path in paths]


PEER = {"address": "10.255.0.9", "remote_as": 64514}
#: Most candidates that are valid still are after one of these.
SOUND = [
    *sets(
        *(("system.hostname", "bng2"), ("system.hostname", "bng3"), ("cgnat.enabled", False)),
        *(("qos.default_down", "50mbit"), ("qos", {"default_down": "1gbit", "default_up": "10mbit"})),
        *(("demux.vlan_profiles.pppoe", PPPOE), ("interfaces.uplinks.2", "uplink2")),
        *(("api.users.ada.password_hash", HASHES[2]), ("api.users", [BOB, ADA])),
        ('api.users."c.d"', {"password_hash": HASHES[1], "role": "admin"}),
        *(("radius.secret", "s3cret-two"), ("radius.server", "10.0.0.5")),
        *(("bgp", None), ("bgp.neighbors", NEIGHBORS), ("bgp.neighbors", NEIGHBORS[::-1])),
        *(('bgp.neighbors."10.255.0.9"', PEER), ("subscribers.local.sue", SUE), ("subscribers", {})),
    ),
    *sets(("demux.idle_timeout", "450", 450), ("bgp", "null", None)),
    *deletes("bgp", "api.users.bob", "bgp.neighbors.0"),
]
SETS = [
    *sets(
        *(("system.hostname", "bng1"), ("interfaces.uplinks", []), ("cgnat.handoff_interface", "nowhere0")),
        *((f"interfaces.trunks.{number}", "trunk7") for number in (0, 2, "trunk1")),
        *(("interfaces.trunks.2", "trunk0"), ("demux.vlan_profiles.twin", {**PPPOE, "name": "twin"})),
        *(("radius.secret", None), ("api.users.bob", ADA)),
        *(("api.users.ada.role", "operator"), ("api.users.ada.role", "admin")),
        *(("api.users.0", {**BOB, "role": "admin"}), ("api.users.1", {**BOB, "username": "eve"})),
        ("api.users.2", {"username": "fay", "role": "admin"}),
        ("api.users.2", {"password_hash": HASHES[2], "role": "admin"}),
        *(('bgp.neighbors."10.255.0.2".remote_as', 64999), ("bgp.neighbors.0.description", "edge")),
        *(("subscribers.local.sue.ip_address", "100.64.0.9"), ("subscribers.local.0.password", "s3cret-one")),
    ),
    *sets(
        *(("api.enabled", "false", False), ("demux.trunks", '["trunk0"]', ["trunk0"])),
        *(("demux.rate_limits", '{"burst": 5}', {"burst": 5}), ("cgnat.enabled", "TRUE", True)),
        ('bgp.neighbors."10.255.0.9".remote_as', "64514", 64514),
    ),
]
REFUSED = [
    *refused(
        "invalid",
        *(("system.hostname", 7), ("system.hostname", None), ("qos", "null"), ("cgnat.enabled", "yes")),
        *(("demux.idle_timeout", True), ("demux.trunks", "trunk0"), ("interfaces.trunks.0", "no interface")),
        *(("api.users.ada.password_hash", MASK), ("api.users.0.role", "root"), ("api.users", [ADA, ADA])),
        *(('api.users."no name".role', "admin"), ("bgp.neighbors.core1.remote_as", 64513)),
    ),
    *refused(
        "unknown",
        *(("nonsense", 1), ("qos.burst", "1"), ("qos.0", "1"), ("qos", {"burst": "1"})),
        *(("system.hostname.deep", "x"), ("interfaces.trunks.0.name", "x"), ("api.users.ada.shoe_size", 44)),
    ),
    *refused("missing", ("bgp.neighbors", [{"remote_as": 64513}])),
    *(Edit(action, path, "1", wrong="path") for action in ACTIONS for path in ("", "qos..burst")),
]
DELETES = deletes(
    *("system.hostname", "system.hostname.deep", "system", "qos", "qos.burst", "nonsense"),
    *("demux.vlan_profiles.pppoe", "demux.vlan_profiles.0.type", "demux.trunks.0", "radius.server"),
    *("interfaces.trunks.trunk1", "interfaces.trunks.1", "interfaces.trunks.9", "radius.secret"),
    *("api.users.ada", "api.users.0", "api.users.2", "api.users.ada.username", 'api.users."c.d"'),
    *("api.users.eve.password_hash", "bgp.neighbors", 'bgp.neighbors."10.255.0.2"', "bgp.router_id"),
    *("subscribers.local.sue", "subscribers.local", "subscribers", "api.token_lifetime"),
)
ALL_EDITS = [*SOUND, *SETS, *REFUSED, *DELETES]


class No(Exception):
    """A refusal: its kind, and its details."""


class Revision(NamedTuple):
    document: Document
    author: str
    comment: str | None
    committed_at: int

    @classmethod
    def of(cls, document: Document, commit: Commit) -> "Revision":
        return cls(document, commit.author, commit.comment, commit.committed_at)


def in_json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


class Model:
    """What a workspace promises. Its entity tags are the contents that they stand for."""

    def __init__(self) -> None:
        #: Its wall clock shows deadlines and dates commits.
        self.clock = StillClock(NOW + 0.25)
        self.running = Revision(FACTORY, "factory", None, NOW)
        self.candidate = FACTORY
        self.archive: list[Revision] = []
        self.deadline: int | None = None
        self.baseline = FACTORY
        #: How many configurations ran so far.
        self.runs = 1
        #: Whether the services refuse their files.
        self.refusing = False

    def contents(self) -> str:
        return in_json([self.running.document, self.candidate])

    def staged(self) -> str:
        return format_diff(compare(self.running.document, self.candidate))

    def shown_deadline(self) -> int | None:
        return None if self.deadline is None else self.deadline + int(self.clock.ahead)

    def edit(self, edits: Sequence[Edit], if_match: Sequence[str] | None) -> None:
        self._expect(if_match)
        made = copy.deepcopy(self.candidate)
        for number, edit in enumerate(edits):
            try:
                if edit.wrong in ("unknown", "path"):
                    raise No("invalid" if edit.wrong == "path" else "unknown")
                (put if edit.action == "set" else take)(made, edit)
            except No as no:
                raise No("Refused", number, *no.args) from no
        self.candidate = made

    def discard(self, if_match: Sequence[str] | None) -> str:
        self._expect(if_match)
        before, self.candidate = self.staged(), self.running.document
        return before

    def rollback(self, revision: int, if_match: Sequence[str] | None) -> tuple[str, int]:
        self._expect(if_match)
        if not 1 <= revision <= len(self.archive):
            raise No("RevisionNotFound")
        before, self.candidate = self.staged(), self.archive[revision - 1].document
        return before, len(compare(self.running.document, self.candidate))

    def commit(
        self, comment: str | None, confirm_seconds: int | None, if_match: Sequence[str] | None
    ) -> tuple[Any, ...]:
        if self.revert_if_due():
            raise No("Stale")
        self._expect(if_match)
        before, shown = self.staged(), self.shown_deadline()
        found = compare(self.running.document, self.candidate)
        waits = self.deadline is not None
        deadline = None if confirm_seconds is None else math.ceil(self.clock.now + confirm_seconds)
        if found:
            try:
                RunningConfiguration.of(self.candidate)
            except Invalid as error:
                raise No("Invalid", {problem.path for problem in error.problems}) from error
            former = self.running.document
            self._run(self.candidate, "alice", comment)
            self.baseline = self.baseline if waits else former
            self.candidate, self.deadline = self.running.document, deadline
        elif waits and deadline is not None:
            self.deadline = deadline
        return before, shown, len(found), self.running[1:], self.shown_deadline()

    def confirm(self) -> None:
        self.revert_if_due()
        if self.deadline is None:
            raise No("NothingToConfirm")
        self.deadline = None

    def revert_if_due(self) -> bool:
        if self.deadline is None or self.clock.now < self.deadline:
            return False
        staged = self.candidate if self.candidate != self.running.document else None
        self._run(self.baseline, "core", "not confirmed in time")
        self.deadline = None
        self.candidate = self.running.document if staged is None else staged
        return True

    def _expect(self, if_match: Sequence[str] | None) -> None:
        if if_match is not None and self.contents() not in if_match:
            raise No("Stale")

    def _run(self, document: Document, author: str, comment: str | None) -> None:
        if self.refusing:
            raise No("StepFailed")
        self.archive = [self.running, *self.archive][:ARCHIVED]
        self.running = Revision(document, author, comment, int(self.clock.wall()))
        self.runs += 1


def segments(path: str) -> list[str | int]:
    found = re.findall(r'"[^"]+"|[^."]+', path)
    return [int(text) if text.isdigit() else text.strip('"') for text in found]


def place_of(items: list[Any], here: str, segment: str | int) -> int | None:
    """The index of the item that an index, a key or the text itself names."""
    if isinstance(segment, int):
        return segment if segment < len(items) else None
    names = [item[KEYS[here]] if here in KEYS else item for item in items]
    return names.index(segment) if segment in names else None


def put(document: Document, edit: Edit) -> None:
    holder: Any = document
    here = ""
    *above, last = segments(edit.path)
    for segment in above:
        if isinstance(holder, dict):
            here = f"{here}.{segment}".lstrip(".")
            if holder.get(segment) is None:
                holder[segment] = [] if here in (*KEYS, *TEXTS) else {}
            holder = holder[segment]
            continue
        place = place_of(holder, here, segment)
        if place is None:
            if isinstance(segment, int):
                raise No("unknown")
            holder.append({KEYS[here]: segment})
        holder, here = holder[-1 if place is None else place], f"{here}.*"
    value = copy.deepcopy(edit.stored)
    if isinstance(holder, list):
        put_item(holder, here, last, value, edit.wrong)
        return
    if edit.wrong:
        raise No(edit.wrong)
    if last == KEYS.get(here.removesuffix(".*")) and holder[last] != value:
        raise No("invalid")
    holder[last] = value


def put_item(items: list[Any], here: str, segment: str | int, value: Any, wrong: str | None) -> None:
    place = place_of(items, here, segment)
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
    items[slice(len(items), None) if place is None else slice(place, place + 1)] = [value]


def take(document: Document, edit: Edit) -> None:
    holder: Any = document
    here = ""
    for segment in segments(edit.path):
        is_list = isinstance(holder, list)
        place: Any = place_of(holder, here, segment) if is_list else segment
        if place is None or not (is_list or (isinstance(holder, dict) and place in holder)):
            raise No("absent")
        held, owner = holder, here
        here = f"{here}.*" if is_list else f"{here}.{segment}".lstrip(".")
        holder = holder[place]
    if owner.endswith(".*") and segment == KEYS.get(owner.removesuffix(".*")):
        raise No("invalid")
    del held[place]


class Pair:
    """A workspace in a folder, and a model. `act` has both do the same. It is also the services."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = Model()
        #: The kinds of outcomes that each action had.
        self.outcomes: set[str] = set()
        #: The entity tag of all contents that were seen.
        self.etags: dict[str, str] = {}
        #: How many configurations had run when the files were last compared.
        self._compared_runs = 0
        self.start()

    def start(self) -> None:
        self.store = ConfigurationStore(self.folder)
        factory = RunningConfiguration(copy.deepcopy(FACTORY), FACTORY_SECTIONS)
        self.workspace = Workspace(self.store, lambda: factory, self.model.clock, self)
        self.workspace.apply_running()
        self.runs_at_start, self.followed = self.model.runs, list[Configuration]()
        self.workspace.follow(self.followed.append)

    def render(self, configuration: Configuration) -> RenderedFiles:
        if self.model.refusing and self.model.runs % 2:
            raise StepFailed("check the files of the services", "they are refused")
        return {"hostname": configuration.system.hostname}

    def apply(self, rendered: RenderedFiles, configuration: Configuration) -> None:
        if self.model.refusing:
            raise StepFailed("reload a service", "it refuses its files")
        assert rendered == self.render(configuration)
        self.applied = configuration

    def resume(self, configuration: Configuration) -> None:
        self.apply(self.render(configuration), configuration)

    def edit(self, edits: Sequence[Edit], if_match: Sequence[str] | None) -> None:
        operations = [WireEdit(edit.action, edit.path, copy.deepcopy(edit.value)) for edit in edits]
        self.workspace.edit(operations, self._request(if_match))

    def discard(self, if_match: Sequence[str] | None) -> str:
        return self.workspace.discard(self._request(if_match)).before.diff

    def rollback(self, revision: int, if_match: Sequence[str] | None) -> tuple[str, int]:
        reply = self.workspace.rollback(revision, self._request(if_match))
        return reply.before.diff, reply.changes

    def archived(self, revision: int) -> Revision:
        commit, document = self.workspace.read_archived(revision)
        return Revision.of(document, commit)

    def commit(
        self, comment: str | None, confirm_seconds: int | None, if_match: Sequence[str] | None
    ) -> tuple[Any, ...]:
        reply = self.workspace.commit(self._request(if_match, comment), confirm_seconds)
        before, commit = reply.before, (reply.author, reply.comment, reply.committed_at)
        return before.diff, before.confirm_deadline, reply.changes, commit, reply.confirm_deadline

    def confirm(self) -> None:
        self.workspace.confirm(ChangeRequest())

    def revert_if_due(self) -> bool:
        return self.workspace.revert_if_due()

    def _request(self, if_match: Sequence[str] | None, comment: str | None = None) -> ChangeRequest:
        etags = None if if_match is None else [self.etags[contents] for contents in if_match]
        return ChangeRequest("alice", comment, etags)

    def act(self, action: str, *arguments: Any) -> None:
        expected, got = (outcome(getattr(one, action), *arguments) for one in (self.model, self))
        assert got == expected
        self.outcomes.add(f"{action} {expected[0]}")

    def check(self) -> None:
        """Fails unless all that can be seen of the core is as in the model."""
        model = self.model
        snapshot, difference = self.workspace.snapshot, self.workspace.compare(None)
        assert Revision.of(snapshot.running.document, snapshot.commits[0]) == model.running
        # As text, because Python takes True for 1.
        assert in_json([snapshot.running.document, snapshot.candidate]) == model.contents()
        assert (difference.diff, difference.confirm_deadline) == (model.staged(), model.shown_deadline())
        assert not any(secret in difference.diff for secret in SECRETS)
        assert self.etags.setdefault(model.contents(), snapshot.etag) == snapshot.etag
        assert len(set(self.etags.values())) == len(self.etags)
        if self._compared_runs != model.runs:
            self._compared_runs = model.runs
            assert [self.archived(number + 1) for number in range(len(model.archive))] == model.archive
            assert len(snapshot.commits) == 1 + len(model.archive)
            # Besides those that count, and one that may return: what the last commits left until the next.
            assert len(list((self.folder / "revisions").iterdir())) <= 1 + len(model.archive) + 1 + 2
            assert len(self.followed) == model.runs - self.runs_at_start
            assert self.applied == snapshot.running.sections
            assert not self.followed or self.followed[-1] is snapshot.running.sections


def outcome(act: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    try:
        return "done", act(*arguments)
    except No as no:
        return no.args
    except OperationRefused as error:
        reason = error.reason
        code = reason.problems[0].code if isinstance(reason, Invalid) else "absent"
        return "Refused", error.number, code
    except Invalid as error:
        return "Invalid", {problem.path for problem in error.problems}
    except ErrorReply as error:
        return (error.name.rpartition(".")[2],)
    except (Stale, StepFailed) as error:
        return (type(error).__name__,)


class RandomSequence:
    """Random actions on a pair, each with a check."""

    ACTIONS = ("edit", "commit", "change", "rollback", "discard", "confirm", "time", "clock", "restart")

    def __init__(self, pair: Pair, choice: random.Random) -> None:
        self._pair = pair
        self._choice = choice

    def run(self) -> None:
        # Only many commits fill the archive, and they take long.
        names = [f"bng-{number}" for number in range(52 if self._choice.random() < 0.03 else 1)]
        for name in names:
            self._pair.act("edit", sets(("system.hostname", name)), None)
            self._pair.act("commit", "history", 60 if len(names) > 1 else None, None)
        # Then the archive has lost what comes back.
        self.time("deadline")
        self._pair.check()
        actions = self._choice.sample(self.ACTIONS, self._choice.randint(3, len(self.ACTIONS)))
        for action in self._choice.choices(actions, k=12):
            getattr(self, action)()
            self._pair.check()

    def edit(self) -> None:
        edits = self._choice.choices(ALL_EDITS, k=self._choice.randint(1, 3))
        self._pair.act("edit", edits, self._known())

    def commit(self) -> None:
        self._pair.act("commit", self._choice.choice([None, "why"]), self._seconds(), self._known())

    def change(self) -> None:
        if self._seldom():
            self._pair.act("discard", None)
        self._pair.act("edit", self._choice.choices(SOUND, k=self._choice.randint(1, 2)), None)
        self._pair.model.refusing = self._seldom()
        self._pair.act("commit", "as well", self._seconds(), None)
        self._pair.model.refusing = False

    def rollback(self) -> None:
        count = len(self._pair.model.archive)
        self._pair.act("rollback", self._choice.choice([1, count, count + 1, 0, -1]), self._known())
        if self._seldom():
            self._pair.act("commit", "back", None, None)

    def discard(self) -> None:
        self._pair.act("discard", self._known())

    def confirm(self) -> None:
        self._pair.act("confirm")

    def time(self, until: str | None = None) -> None:
        model = self._pair.model
        until = until or self._choice.choice(["soon", "just before", "deadline"])
        model.clock.now += 0.5
        if until != "soon" and model.deadline is not None:
            model.clock.now = max(model.clock.now, model.deadline - (until == "just before") / 4)
        model.refusing = self._seldom()
        self._pair.act("revert_if_due")
        model.refusing = False

    def clock(self) -> None:
        self._pair.model.clock.ahead = self._choice.choice([0, -86_400, 3_600, 86_400])

    def restart(self) -> None:
        self._pair.store.close()
        self._pair.start()

    def _seldom(self) -> bool:
        return self._choice.random() < 0.2

    def _seconds(self) -> int | None:
        return self._choice.choice([None, None, 1, 5, 60])

    def _known(self) -> list[str] | None:
        """The contents whose entity tags a caller sends."""
        now = self._pair.model.contents()
        seen = [contents for contents in self._pair.etags if contents != now][-2:]
        return self._choice.choice([None, None, None, None, [now], [*seen, now], seen, []])


#: An item or more in each list.
FULL = sets(
    ("interfaces.trunks", ["trunk0", "trunk1", "trunk2"]),
    ("demux.vlan_profiles", [PPPOE]),
    ("radius", {"server": "10.0.0.5", "secret": "s3cret-two"}),
    ("api.users", [ADA, {**BOB, "username": "eve"}, {**BOB, "username": "c.d"}, BOB]),
    ("api.token_lifetime", 600),
    ("bgp.neighbors", [*NEIGHBORS, {"address": "10.255.0.9", "remote_as": 64513}]),
    ("subscribers.local.sue", {**SUE, "ip_address": None}),
)
EMPTY = [*deletes("interfaces", "demux", "radius", "bgp", "api"), *sets(("subscribers", {}))]


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.parametrize("before", [[], FULL, EMPTY], ids=["factory", "full", "empty"])
def test_each_edit_alone_does_as_in_the_model(before: list[Edit], tmp_path: Path) -> None:
    for number, edit in enumerate(ALL_EDITS):
        pair = Pair(tmp_path / str(number))
        for edits in (before, [edit]):
            pair.act("edit", edits, None)
            pair.check()
            pair.act("commit", None, None, None)
            pair.check()
        pair.store.close()


def run_sequences(number: int, folder: Path) -> set[str]:
    """Run random sequences of changes beside the model, and return which outcomes they had."""
    outcomes: set[str] = set()
    for seed in range(number):
        pair = Pair(folder / str(seed))
        try:
            RandomSequence(pair, random.Random(seed)).run()
        except BaseException as error:
            error.add_note(f"the seed is {seed}")
            raise
        pair.store.close()
        outcomes |= pair.outcomes
    return outcomes


def test_a_workspace_does_as_its_model_in_sequences(tmp_path: Path) -> None:
    outcomes = run_sequences(150, tmp_path)
    # Without these, the sequences would prove little.
    assert outcomes >= {
        *("edit done", "edit Refused", "edit Stale", "discard done", "discard Stale", "rollback done"),
        *("rollback RevisionNotFound", "rollback Stale", "commit done", "commit Invalid", "commit Stale"),
        *("commit StepFailed", "confirm done", "confirm NothingToConfirm", "revert_if_due done"),
    }
