"""`make fleet` as a person meets it: what it prints, what its tutorial shows, and what it leaves behind."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.manual import blocks, script, wrong
from tests.support.nats import list_messages, use_jetstream
from tests.support.stack import descendants, free_port, make_state, wait_for
from tests.system.test_asyncapi import find_errors

ROOT = Path(__file__).parents[2]


@contextmanager
def make_fleet(state: Path, gateways: int) -> Iterator["subprocess.Popen[bytes]"]:
    """`make fleet` in a process group of its own, as a terminal would have it, once all gateways respond."""
    for number in range(gateways):
        make_state(state / f"bng{number + 1}")
    variables = {"STATE": state, "PORT": free_port(), "NATS_PORT": free_port(), "GATEWAYS": gateways}
    variables |= {"SESSIONS": 20, "ARRIVALS": 0}
    with state.with_suffix(".log").open("wb") as output:
        process = subprocess.Popen(
            ["make", "-C", ROOT, "--no-print-directory", "fleet"],
            env=os.environ | {name: str(value) for name, value in variables.items()},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def is_ready() -> bool:
        assert process.poll() is None, printed(state)
        return (state / "environment").exists()

    try:
        wait_for("make fleet to answer", is_ready)
        yield process
    finally:
        interrupt(process)


def printed(state: Path) -> str:
    return state.with_suffix(".log").read_text()


def interrupt(process: "subprocess.Popen[bytes]") -> None:
    """Ctrl-C: the whole group gets the signal."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)


def paste(lines: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-eu", "-o", "pipefail"],
        input=lines,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_printed_lines_work_when_pasted_and_ctrl_c_stops_everything(tmp_path: Path) -> None:
    state = tmp_path / "fleet"
    with make_fleet(state, 2) as process:
        wait_for("the greeting", lambda: "docs/tutorial" in printed(state))
        lines = printed(state).partition("In another shell:")[2].partition("docs/tutorial")[0]
        # The relays send the sessions as soon as they are connected.
        wait_for("the history", lambda: paste(lines).returncode == 0)
        shown = paste(lines).stdout
        # The address is that of a session of the last gateway.
        assert [line.split()[0] for line in shown.splitlines()].count("bng2") == 4, shown
        assert "subscriber400" in shown
        follow_tutorial(state)
        check_messages(state)
        started = descendants(process.pid)
        # make, the server, the history, and of each gateway the starter, core, arbiter, worker and relay.
        assert len(started) >= 13
        (relay,) = (pid for pid in started if b"relay-bng2" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(relay, signal.SIGKILL)
        wait_for("the relay", lambda: "the relay-bng2 ended with -9; starting it again" in printed(state))
        started = descendants(process.pid)
        interrupt(process)
        assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []
        assert not (state / "environment").exists()


def check_messages(state: Path) -> None:
    """Check that the messages of both gateways in the stream have the schemas of the AsyncAPI document."""
    (url,) = re.findall('listen: "(.*)"', (state / "nats.conf").read_text())
    seed = (state / "administrator.nk").read_text()
    found = set()
    for message in use_jetstream([f"nats://{url}"], list_messages, nkeys_seed_str=seed):
        _, gateway, subject = message.subject.split(".", 2)
        assert find_errors(subject, message.data) == [], message
        found.add((gateway, subject))
    # In the lab of the test, no session starts and no rate changes.
    subjects = {"snapshot", "commits", "faults", "health", "audit"}
    expected = {(gateway, subject) for gateway in ("bng1", "bng2") for subject in subjects}
    assert found == expected | {("bng2", "events.session_down")}


def follow_tutorial(state: Path) -> None:
    """Run the lines of the tutorial."""
    chosen = [block for block in blocks("bash") if block.where.startswith("docs/tutorial/fleet.md")]
    assert len(chosen) > 7
    lines = script(chosen).replace(" .fleet/", f" {state}/")
    ended = subprocess.run(
        ["bash", "-eu", "-o", "pipefail"],
        input=lines,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "150"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    assert wrong(chosen, ended.stdout) == []
