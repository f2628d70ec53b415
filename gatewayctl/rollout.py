"""Rollout: the same change of the configuration on many gateways, in waves.

Each gateway of a wave commits the change with a deadline, and is then checked. Only if all gateways of the
wave are well, their commits are confirmed. The first failure stops the rollout: gateways whose commit is not
confirmed return by themselves, also those that this machine cannot reach. So a gateway has either the former
or the new configuration in the end, whatever happens to this process.

A state file names the next step of each gateway before the step begins. A resumed rollout does not rely on
the step, but reads what the gateway runs: the comment of a commit names the rollout, and an ETag stands for
exactly one pair of running configuration and candidate.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from enum import Enum, StrEnum, auto
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from gateway_client.errors import ClientError, ExitStatus, NoResponse, Refused
from gateway_client.gateway import Record, RemoteGateway
from gateway_contract.base import durable
from gateway_contract.base.errors import GatewayApiError
from gateway_contract.core.health import DependencyState
from gatewayctl import merge_patch
from gatewayctl.errors import CommandError
from gatewayctl.texts import format_time

_CONFIGURATION_PATH = "/system/config"
#: Author of the commit by which the core returns to the former configuration.
_CORE_AUTHOR = "core"
#: Shortest time to confirm: a part of the time is for the checks, another for the confirmation.
MIN_CONFIRM_SECONDS = 10
#: Parts of the time to confirm: the longest request, the pause before the first check of health, the time in
#: which health may be worse, and the time for all checks. The rest is for the confirmation.
_REQUEST_PART, _PAUSE_PART, _HEALTH_PART, _CHECK_PART = 1 / 2, 1 / 12, 1 / 3, 2 / 3
_MAX_REQUEST_SECONDS, _MAX_PAUSE_SECONDS = 30.0, 10.0
#: Time after the deadline in which a gateway must have returned.
_RETURN_SECONDS = 15.0
_POLL_SECONDS = 0.5
_MAX_OUTPUT_BYTES = 1000


class Step(StrEnum):
    """Progress of a rollout on one gateway."""

    NEW = auto()
    #: The gateway may have edits of the rollout in its candidate.
    PLANNING = auto()
    PLANNED = auto()
    #: The gateway has the configuration already.
    UNCHANGED = auto()
    #: The gateway may have edits of the rollout in its candidate.
    STAGING = auto()
    #: The gateway may run the change, which is not confirmed.
    COMMITTING = auto()
    CHECKING = auto()
    #: The change may be confirmed.
    CONFIRMING = auto()
    CONFIRMED = auto()
    RETURNED = auto()


#: Steps of a gateway that has the new configuration for good.
_DONE_STEPS = frozenset((Step.UNCHANGED, Step.CONFIRMED))
#: Steps in which nothing is staged, and no commit waits for its confirmation.
SETTLED_STEPS = frozenset((Step.NEW, Step.PLANNED, Step.UNCHANGED, Step.CONFIRMED, Step.RETURNED))


class Member(msgspec.Struct):
    """Gateway of a rollout. `name` is the context of the gateway, and the wave 0 has the canaries.

    `clean_etag` stands for the configuration before the change, and `staged_etag` for the same with the
    change in the candidate. `difference` is the comparison by the gateway, and `health` the severity of the
    state of each dependency before the commit. At `returns_at`, in epoch seconds of this machine, the gateway
    returns to the former configuration unless the commit is confirmed. `problem` is a sentence about a failed
    step.
    """

    name: str
    url: str
    step: Step = Step.NEW
    wave: int = 0
    operations: list[Record] = []
    clean_etag: str | None = None
    staged_etag: str | None = None
    difference: Record | None = None
    health: dict[str, int] = {}
    returns_at: float = 0.0
    problem: str = ""


class RolloutState(msgspec.Struct, forbid_unknown_fields=True):
    """Content of a state file. `comment` is the comment of the commits, which no other rollout has. `canary`
    and `wave` are numbers of gateways. Without `is_accepted`, the user has not agreed to the plan yet."""

    comment: str
    patch: Record
    members: list[Member]
    canary: int
    wave: int
    confirm_seconds: int
    probe: str | None = None
    is_accepted: bool = False
    is_stopped: bool = False


def read_state(path: Path) -> RolloutState:
    """Return the content of a state file. Raises CommandError if the file cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=RolloutState)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise CommandError(ExitStatus.USAGE, f"cannot read the state file {path}: {reason}") from error
    except msgspec.MsgspecError as error:
        reason = f"{path} is not the state file of a rollout: {error}"
        raise CommandError(ExitStatus.USAGE, reason) from error


class _Running(Enum):
    """Configuration that a gateway runs, seen from a rollout."""

    #: The former configuration, with nothing staged.
    FORMER = auto()
    #: The former configuration, with the change of the rollout in the candidate.
    STAGED = auto()
    #: The new configuration, which is not confirmed.
    WAITING = auto()
    #: The new configuration, confirmed.
    NEW = auto()
    #: The former configuration, after the commit of the rollout was not confirmed.
    RETURNED = auto()
    #: Another configuration, or other changes in the candidate.
    OTHER = auto()


class _Stopped(GatewayApiError):
    """End of a step before its time: another gateway has failed, or the user has pressed Ctrl-C."""


#: Function that tells the user about an event on the gateway with the given context; None for all gateways.
Notify = Callable[[str | None, str], None]


class Rollout:
    """Rollout over the gateways in `gateways`, by the names of their contexts. `path` is the state file. A
    wave must not have more gateways than `max_threads`."""

    def __init__(
        self, state: RolloutState, path: Path, gateways: Mapping[str, RemoteGateway], notify: Notify, *,
        max_threads: int,
    ) -> None:  # fmt: skip
        self.state = state
        self._path = path
        self._gateways = gateways
        self._notify = notify
        self._max_threads = max_threads
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._interruption = threading.Event()

    @property
    def failed_members(self) -> list[Member]:
        """Members that do not have the new configuration for good."""
        return [each for each in self.state.members if each.step not in _DONE_STEPS]

    def plan(self) -> list[Member]:
        """Compute the difference and the impact of the change on each gateway, and the waves. Return the
        members that cannot be planned. Raises CommandError if the state file cannot be written."""
        self._save()
        members = self.state.members
        for each in members:
            each.problem = ""
        self._run_each(members, self._plan_member)
        planned_members = [each for each in members if each.step is Step.PLANNED]
        canary, wave = self.state.canary, self.state.wave
        for index, each in enumerate(planned_members):
            each.wave = 0 if index < canary else 1 + (index - canary) // wave
        return [each for each in members if each.problem]

    def run(self) -> None:
        """Change the gateways wave by wave, or stop at the first failure. Then wait until each gateway has
        returned whose commit is not confirmed. Raises CommandError if the state file cannot be written."""
        self.state.is_accepted = True
        self._save()
        members = self.state.members
        for number in sorted({each.wave for each in members}):
            wave = [each for each in members if each.wave == number and each.step not in _DONE_STEPS]
            for function in (self._apply, self._confirm):
                if not self.state.is_stopped:
                    self._run_each(wave, function, can_stop=True)
        self._stop.set()
        self._run_each([each for each in members if each.step not in SETTLED_STEPS], self._settle)

    def close(self) -> bool:
        """Remove the state file if nothing is staged and no commit waits. Return True if the file stays."""
        is_needed = any(each.step not in SETTLED_STEPS for each in self.state.members)
        is_unfinished = self.state.is_accepted and not self.state.is_stopped and bool(self.failed_members)
        if is_needed or is_unfinished:
            return True
        self._path.unlink(missing_ok=True)
        return False

    def _run_each(
        self, members: Sequence[Member], function: Callable[[Member], None], *, can_stop: bool = False
    ) -> None:
        """Call a function with each member, in parallel. The first failure stops the rollout if `can_stop`.
        After Ctrl-C, wait for the requests under way."""

        def run(member: Member) -> None:
            if self._interruption.is_set():
                return
            try:
                function(member)
            except _Stopped:
                pass
            except ClientError as error:
                # A step that Ctrl-C has cut short is no failure: a resumed rollout repeats the step.
                if not self._interruption.is_set():
                    self._stop_rollout(member, error, can_stop=can_stop)

        if not members:
            return
        with ThreadPoolExecutor(min(len(members), self._max_threads)) as pool:
            futures = [pool.submit(run, each) for each in members]
            try:
                wait(futures)
            except KeyboardInterrupt:
                self._interruption.set()
                self._stop.set()
                self._notify(None, "stopped: the requests under way end first")
                raise
        for each in futures:
            each.result()

    def _stop_rollout(self, member: Member, error: ClientError, *, can_stop: bool) -> None:
        """Note that a step has failed on a member."""
        for line in error.lines:
            self._notify(member.name, line)
        if not member.problem:
            member.problem = error.lines[0]
        if can_stop:
            self.state.is_stopped = True
            self._stop.set()
        # Even if the disk is full, the other gateways must settle.
        with suppress(CommandError):
            self._save()

    def _save(self) -> None:
        with self._lock:
            try:
                durable.replace(self._path, msgspec.json.format(msgspec.json.encode(self.state)))
            except OSError as error:
                reason = f"cannot write the state file {self._path}: {error.strerror}"
                raise CommandError(ExitStatus.REFUSED, reason) from error

    def _advance(self, member: Member, step: Step) -> None:
        member.step = step
        self._save()

    # The plan

    def _plan_member(self, member: Member) -> None:
        """Stage the change, compare, and discard the change. Raises ClientError if the gateway cannot take
        the change."""
        gateway = self._gateways[member.name]
        difference, etag = self._discard_own_change(member)
        if difference["diff"]:
            reason = "the candidate has changes of another user: they must be committed or discarded first"
            raise CommandError(ExitStatus.REFUSED, reason)
        if deadline := difference["confirm_deadline"]:
            reason = f"another commit waits for its confirmation until {format_time(deadline)}"
            raise CommandError(ExitStatus.REFUSED, reason)
        document, document_etag = gateway.request("GET", _CONFIGURATION_PATH)
        member.operations = [each.operation for each in merge_patch.compare(self.state.patch, document)]
        if not member.operations:
            self._advance(member, Step.UNCHANGED)
            return
        member.clean_etag = etag
        self._advance(member, Step.PLANNING)
        try:
            member.staged_etag = self._edit(member)
        except ClientError as error:
            if isinstance(error, NoResponse):
                self._discard_own_change(member, may_arrive=True)
            self._advance(member, Step.PLANNED)
            raise
        try:
            difference, staged_etag = gateway.request("GET", f"{_CONFIGURATION_PATH}/compare")
        finally:
            self._discard(member, member.staged_etag)
            self._advance(member, Step.PLANNED if member.staged_etag != etag else Step.UNCHANGED)
        if document_etag != etag or staged_etag != member.staged_etag:
            raise CommandError(ExitStatus.REFUSED, "another user has changed the configuration meanwhile")
        if difference["impact"] is None:
            reason = "the changed configuration would not be valid; a commit on this gateway names the rules"
            raise CommandError(ExitStatus.REFUSED, reason)
        member.difference = difference

    def _discard_own_change(self, member: Member, *, may_arrive: bool = False) -> tuple[Record, str | None]:
        """Discard the change of an interrupted plan from the candidate of a gateway. With `may_arrive`, the
        edit may still be under way: wait for it as long as a request may take. Return the comparison by the
        gateway and its ETag. Raises ClientError if a request fails."""
        end = time.time() + self._request_seconds
        while True:
            try:
                difference, etag = self._gateways[member.name].request(
                    "GET", f"{_CONFIGURATION_PATH}/compare"
                )
                if difference["diff"] and self._is_own_change(member, difference["diff"]):
                    self._discard(member, etag)
                    may_arrive = False
                elif not may_arrive or difference["diff"] or time.time() > end:
                    return difference, etag
                else:
                    self._sleep(_POLL_SECONDS)
            except NoResponse:
                if member.step is not Step.PLANNING or time.time() > end:
                    raise
                self._sleep(_POLL_SECONDS)

    def _is_own_change(self, member: Member, diff: str) -> bool:
        """Return True if the candidate has the change of an interrupted plan, and nothing else."""
        if member.step is not Step.PLANNING:
            return False
        candidate = self._gateways[member.name].get(f"{_CONFIGURATION_PATH}/candidate")
        if any(each.is_visible for each in merge_patch.compare(self.state.patch, candidate)):
            return False
        prefixes = tuple(f"{each['path']}{end}" for each in member.operations for end in (" = ", "."))
        return all(line[2:].startswith(prefixes) for line in diff.splitlines())

    # A wave

    def _apply(self, member: Member) -> None:
        """Commit the change on a gateway, and check the gateway. If the rollout was interrupted, go on with
        what the gateway runs."""
        running = self._observe(member)
        if running is _Running.WAITING:
            running = self._renew_deadline(member)
        if running is _Running.NEW:
            self._advance(member, Step.CONFIRMED)
            return
        if running is _Running.STAGED and member.step is not Step.PLANNED:
            self._discard(member, member.staged_etag)
        elif running in (_Running.STAGED, _Running.OTHER):
            reason = "the configuration or the candidate has changed since the plan: start a new rollout"
            raise CommandError(ExitStatus.REFUSED, reason)
        if running is not _Running.WAITING:
            self._commit(member)
        self._check(member)

    def _renew_deadline(self, member: Member) -> _Running:
        """Move the deadline of the commit of a gateway, so that all gateways of the wave have the whole time
        to confirm. Return what the gateway runs afterwards: the gateway may have returned to the former
        configuration meanwhile, and another user may have confirmed the commit. Raises ClientError if a
        request fails, or if another user has changed the candidate."""
        gateway = self._gateways[member.name]
        difference, etag = gateway.request("GET", f"{_CONFIGURATION_PATH}/compare")
        if difference["diff"]:
            reason = "another user has changed the candidate since the commit"
            raise CommandError(ExitStatus.REFUSED, reason)
        body = {"confirm_seconds": self.state.confirm_seconds}
        member.returns_at = time.time() + self._request_seconds + self.state.confirm_seconds
        self._advance(member, Step.CHECKING)
        try:
            response = gateway.request("POST", f"{_CONFIGURATION_PATH}/commit", body, if_match=etag)
        except Refused:
            running = self._observe(member)
            if running is _Running.WAITING:
                # The candidate has changed since the comparison.
                raise
            return running
        if response.data["confirm_deadline"] is None:
            return self._observe(member)
        member.returns_at = time.time() + self.state.confirm_seconds
        return _Running.WAITING

    def _commit(self, member: Member) -> None:
        gateway = self._gateways[member.name]
        member.health = _read_health(gateway)
        if self._stop.is_set():
            raise _Stopped
        self._advance(member, Step.STAGING)
        try:
            etag = self._edit(member)
            if etag != member.staged_etag:
                self._discard(member, etag)
                raise CommandError(ExitStatus.REFUSED, "the change differs from that of the plan")
            if self._stop.is_set():
                self._discard(member, etag)
                raise _Stopped
        except (ClientError, _Stopped) as error:
            if not isinstance(error, NoResponse):
                self._advance(member, Step.PLANNED)
            raise
        impact = (member.difference or {})["impact"]
        body = {
            "comment": self.state.comment,
            "confirm_seconds": self.state.confirm_seconds,
            "max_sessions_dropped": impact["sessions_dropped"],
        }
        member.returns_at = time.time() + self._request_seconds + self.state.confirm_seconds
        self._advance(member, Step.COMMITTING)
        try:
            gateway.request("POST", f"{_CONFIGURATION_PATH}/commit", body, if_match=etag)
        except NoResponse as error:
            # The commit may have been made.
            running = self._resolve(member, time.time() + self._request_seconds)
            if running in (_Running.FORMER, _Running.RETURNED):
                self._advance(member, Step.PLANNED)
            if running is not _Running.WAITING:
                raise error
        except ClientError:
            self._discard(member, etag)
            self._advance(member, Step.PLANNED)
            raise
        else:
            member.returns_at = time.time() + self.state.confirm_seconds
        self._advance(member, Step.CHECKING)
        self._notify(member.name, f"committed: {_describe_return(member)} unless the wave is confirmed")

    def _check(self, member: Member) -> None:
        """Check that a gateway is as healthy as before the commit, and run the probe. Raises CommandError if
        the gateway is not well."""
        end = self._compute_check_end(member, _HEALTH_PART)
        self._pause(min(_MAX_PAUSE_SECONDS, _PAUSE_PART * self.state.confirm_seconds))
        while problem := _find_health_problem(self._gateways[member.name], member.health):
            if time.time() > end:
                raise CommandError(ExitStatus.REFUSED, problem)
            self._pause(_POLL_SECONDS)
        if self.state.probe:
            try:
                self._run_probe(member, self.state.probe)
            except OSError as error:
                raise CommandError(ExitStatus.REFUSED, f"cannot run the probe: {error.strerror}") from error

    def _run_probe(self, member: Member, command: str) -> None:
        context, end = self._gateways[member.name].context, self._compute_check_end(member, _CHECK_PART)
        environment = {**os.environ, "GATEWAY_NAME": member.name, "GATEWAY_URL": context.url}
        if context.ca:
            environment["GATEWAY_CA"] = context.ca
        with TemporaryFile() as output:
            # The probe has a process group of its own, so that a kill also ends its children.
            process = subprocess.Popen(
                ["/bin/sh", "-c", command], env=environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                while process.poll() is None:
                    if time.time() > end:
                        raise CommandError(
                            ExitStatus.REFUSED, "the probe did not end in time, and was killed"
                        )
                    self._pause(_POLL_SECONDS / 10)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            if process.returncode:
                output.seek(max(0, output.seek(0, os.SEEK_END) - _MAX_OUTPUT_BYTES))
                lines = output.read().decode(errors="replace").splitlines()
                raise CommandError(
                    ExitStatus.REFUSED, f"the probe failed with the status {process.returncode}", *lines
                )

    def _confirm(self, member: Member) -> None:
        """Confirm the commit of a gateway. If the response is lost, read whether the commit is confirmed."""
        if member.step is Step.CONFIRMED:
            return
        self._advance(member, Step.CONFIRMING)
        while True:
            try:
                self._gateways[member.name].send("POST", f"{_CONFIGURATION_PATH}/confirm")
                running = _Running.NEW
                reasons: Sequence[str] = ()
            except ClientError as error:
                running, reasons = self._resolve(member, member.returns_at + _RETURN_SECONDS), error.lines
                # After a failure of another gateway, no further commit is confirmed.
                if running is _Running.WAITING and self._stop.is_set():
                    raise
            if running is _Running.NEW:
                self._advance(member, Step.CONFIRMED)
                self._notify(member.name, "confirmed")
                return
            if running is not _Running.WAITING:
                raise CommandError(ExitStatus.REFUSED, "the confirmation came too late", *reasons)
            self._pause(_POLL_SECONDS)

    # After a failure

    def _settle(self, member: Member) -> None:
        """Wait until a gateway has returned whose commit is not confirmed, and discard a staged change."""
        has_committed = member.step not in (Step.PLANNING, Step.STAGING)
        if has_committed:
            self._notify(member.name, _describe_return(member))
        try:
            running = self._await_return(member)
        except NoResponse as error:
            if not has_committed:
                raise
            reason = f"cannot be reached: {_describe_return(member)} unless its commit was confirmed"
            raise NoResponse(reason, *error.lines) from error
        if running is _Running.NEW:
            self._advance(member, Step.CONFIRMED)
        elif running is _Running.OTHER:
            raise CommandError(ExitStatus.REFUSED, "another user has changed the configuration: look at it")
        else:
            has_returned = running is _Running.RETURNED
            self._advance(member, Step.RETURNED if has_returned else Step.PLANNED)
            self._notify(member.name, "returned" if has_returned else "unchanged: nothing was committed")

    def _await_return(self, member: Member) -> _Running:
        """Wait until a gateway has returned to the former configuration, and return what it runs. Raises
        NoResponse if the gateway cannot be reached, and CommandError if it has not returned in time."""
        end = max(member.returns_at + _RETURN_SECONDS, time.time() + self._request_seconds)
        while True:
            running, is_over = self._resolve(member, end), time.time() > end
            # An edit without a response may still be under way, and must not stay in the candidate.
            is_final = member.step is not Step.STAGING or running is _Running.OTHER
            if running is not _Running.WAITING and (is_final or is_over):
                return running
            if is_over:
                reason = f"the commit still waits for its confirmation, although {_describe_return(member)}"
                raise CommandError(ExitStatus.REFUSED, reason)
            self._sleep(_POLL_SECONDS)

    def _resolve(self, member: Member, end: float) -> _Running:
        """Return what a gateway runs, after discarding the change of the rollout from its candidate. `end` is
        the end of further attempts, in epoch seconds. Raises NoResponse if the gateway cannot be reached."""
        while True:
            try:
                running = self._observe(member)
                if running is not _Running.STAGED:
                    return running
                # A commit that is still under way fails after this, or makes this fail.
                self._discard(member, member.staged_etag)
            except (NoResponse, Refused):
                if time.time() > end:
                    raise
            self._sleep(_POLL_SECONDS)

    # Requests

    @property
    def _request_seconds(self) -> float:
        return compute_request_seconds(self.state.confirm_seconds)

    def _compute_check_end(self, member: Member, part: float) -> float:
        """Return the time at which a part of the time to confirm is over, in epoch seconds."""
        return member.returns_at - (1 - part) * self.state.confirm_seconds

    def _observe(self, member: Member) -> _Running:
        """Read what a gateway runs. Raises ClientError if a request fails."""
        gateway, archive_path = self._gateways[member.name], f"{_CONFIGURATION_PATH}/archive"
        archive, former = gateway.get(archive_path), None
        if archive.get("running") is None:
            raise Refused("the core does not say which commit runs, so a rollout is not possible")
        # The commit and the comparison belong together if the commit is the same before and after.
        while archive["running"] != former:
            former = archive["running"]
            difference, etag = gateway.request("GET", f"{_CONFIGURATION_PATH}/compare")
            archive = gateway.get(archive_path)
        is_own = former["comment"] == self.state.comment
        if is_own:
            return _Running.WAITING if difference["confirm_deadline"] else _Running.NEW
        if etag == member.staged_etag:
            return _Running.STAGED
        last_archived = next(iter(archive["revisions"]), {"comment": None})
        if former["author"] == _CORE_AUTHOR and last_archived["comment"] == self.state.comment:
            return _Running.RETURNED
        return _Running.FORMER if etag == member.clean_etag else _Running.OTHER

    def _edit(self, member: Member) -> str | None:
        """Stage the change in the candidate of a gateway without other changes, and return the new ETag.
        Raises Refused with the paths of the configuration if the gateway refuses the change."""
        body = {"operations": member.operations}
        gateway = self._gateways[member.name]
        try:
            return gateway.request(
                "POST", f"{_CONFIGURATION_PATH}/edit", body, if_match=member.clean_etag
            ).etag
        except Refused as error:
            raise Refused(*(_name_path(line, member.operations) for line in error.lines)) from error

    def _discard(self, member: Member, etag: str | None) -> None:
        """Discard the change of the rollout from the candidate of a gateway. `etag` is the ETag with the
        change. Raises ClientError if the request fails, and Refused if the candidate has other changes."""
        self._gateways[member.name].request("POST", f"{_CONFIGURATION_PATH}/discard", if_match=etag)

    # Time

    def _pause(self, seconds: float) -> None:
        """Wait. Raises _Stopped at once when the rollout is stopped."""
        if self._stop.wait(seconds):
            raise _Stopped

    def _sleep(self, seconds: float) -> None:
        """Wait. Raises _Stopped at once after Ctrl-C."""
        if self._interruption.wait(seconds):
            raise _Stopped


def compute_request_seconds(confirm_seconds: int) -> float:
    """Return the longest time of a request, in seconds, so that a lost response leaves time to confirm."""
    return min(_MAX_REQUEST_SECONDS, _REQUEST_PART * confirm_seconds)


def list_waiting(members: Collection[Member]) -> list[str]:
    """Return a line for each gateway whose commit may wait for its confirmation."""
    waiting_steps = (Step.COMMITTING, Step.CHECKING, Step.CONFIRMING)
    return [f"{each.name}: {_describe_return(each)}" for each in members if each.step in waiting_steps]


def _describe_return(member: Member) -> str:
    return f"the former configuration returns by itself at {format_time(member.returns_at)}"


def _name_path(line: str, operations: Sequence[Record]) -> str:
    """Return a line of an error with the path of an operation in place of its number."""
    prefix, _, rest = line.partition(".")
    number, colon, rule = rest.partition(":")
    number = number.partition(".")[0]
    if prefix != "operations" or not colon or not number.isdecimal() or int(number) >= len(operations):
        return line
    return f"{operations[int(number)]['path']}:{rule}"


def _read_health(gateway: RemoteGateway) -> dict[str, int]:
    """Return the severity of the state of each dependency of a gateway, and of each source of sessions that
    does not respond. Raises ClientError if a request fails."""
    dependencies = gateway.get("/system/health/detail")["dependencies"]
    severities = {each["name"]: DependencyState(each["state"]).severity for each in dependencies}
    unavailable_sources = gateway.get("/system/health")["unavailable_sources"]
    return severities | dict.fromkeys(unavailable_sources, DependencyState.FAILED.severity)


def _find_health_problem(gateway: RemoteGateway, former: Mapping[str, int]) -> str | None:
    """Return a sentence if a gateway is less healthy than before the commit; otherwise None."""
    try:
        health = _read_health(gateway)
    except NoResponse as error:
        return f"after the commit: {error.lines[0]}"
    worse = sorted(name for name, severity in health.items() if severity > former.get(name, 0))
    return f"worse than before the commit: {', '.join(worse)}" if worse else None
