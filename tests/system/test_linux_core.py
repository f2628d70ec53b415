"""The core of a Linux gateway as a process, with sessions of accel-ppp, in a kernel's network."""

import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway_contract.varlink.protocol import ErrorReply
from gateway_core.gateways.linux.daemons.accel_ppp import PASSWORD_FILE
from gateway_core.gateways.linux.daemons.daemon import SERVICES_FOLDER
from gateway_core.gateways.linux.kernel.reader import KernelReader
from tests.support.accel import VERSION
from tests.support.linux_core import LinuxCore, come, go, running_linux_core, subscriber
from tests.support.namespaces import ip, tc
from tests.support.stack import PATIENCE, wait_for
from tests.system.test_shaping import limit, needs_shaping

pytestmark = needs_shaping

ALICE, BOB, CAROL = subscriber(0), subscriber(1), subscriber(2)
PASSWORD = PASSWORD_FILE.relative_to("/")
OWED = Path("var/lib/gateway-core/sessions/owed-ends.json")
#: Of etc/factory.json.
DEFAULT = (100_000_000, 20_000_000)


@pytest.fixture
def core(tmp_path: Path) -> Iterator[LinuxCore]:
    """With Alice and Bob, shaped and steered."""
    with running_linux_core(tmp_path) as started:
        come(started, ALICE, BOB)
        wait_for("the sessions", lambda: started.states() == {1: "active", 2: "active"})
        wait_for("their data plane", lambda: rates() == {"ppp0": DEFAULT, "ppp1": DEFAULT})
        wait_for("the steering", lambda: steered() == {ALICE.ip, BOB.ip})
        yield started


def rates() -> dict[str, tuple[int, int]]:
    """What the kernel allows each session, down and up, in bits per second."""
    names = (
        name
        for name in (link.name for link in KernelReader().read_links().values())
        if name.startswith("ppp")
    )
    found = {name: (limit(name), limit(f"ifb-{name}")) for name in names}
    return {name: (down, up) for name, (down, up) in found.items() if down is not None and up is not None}


def steered() -> set[str]:
    """The addresses with a host route in the table of the appliance."""
    found = KernelReader().read_routes([100])
    return {entry.destination.removesuffix("/32") for entry in found if entry.destination.endswith("/32")}


def devices() -> set[str]:
    return {link.name for link in KernelReader().read_links().values()}


def test_a_session_is_in_the_table_the_kernel_and_the_lists_and_leaves_them(core: LinuxCore) -> None:
    assert core.told() == [("up", 1), ("up", 2)]
    summary = core.sessions()[1]
    assert (summary["username"], summary["interface"], summary["source"]) == ("user0", "ppp0", "accel-ppp")
    assert {"ppp0", "ifb-ppp0", "trunk0", "lo"} <= {
        interface["name"] for interface in core.call("ListInterfaces")["interfaces"]
    }
    routes = [route for route in core.call("ListRoutes")["routes"] if route["session_id"] == 1]
    assert {route["dev"] for route in routes} == {"ppp0"}
    # Its link-local address has one, too.
    assert [route["table"] for route in routes if route["dst"] == f"{ALICE.ip}/32"] == ["main", "100"]
    assert "from 100.64.0.0/10 lookup 100" in said("ip", "rule")
    go(core, ALICE)
    wait_for("its end", lambda: core.states() == {2: "active"})
    wait_for("the end of its IFB", lambda: "ifb-ppp0" not in devices())
    assert (core.told()[2:], steered()) == ([("down", 1)], {BOB.ip})
    assert core.call("ListFaults")["faults"] == []


def said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_change_of_the_rate_shapes_before_its_reply_and_a_limit_that_goes_comes_back(
    core: LinuxCore,
) -> None:
    def delays() -> Any:
        return core.call("GetStatistics")["limit_delays"]

    wait_for("the time of both without a limit", lambda: delays()["sessions"] == 2)
    before, changed = delays(), {"ppp0": DEFAULT, "ppp1": (7_000_000, 3_000_000)}
    core.call("SetSessionRate", id=2, rate_down_bps=7_000_000, rate_up_bps=3_000_000)
    assert rates() == changed
    assert (core.sessions()[2]["rate_down"], core.repairs()) == (7_000_000, {})
    # A new rate is no new session.
    assert delays() == before
    tc("qdisc del dev ppp1 root")
    wait_for("the repair", lambda: core.repairs() == {"shaper": 1})
    assert rates() == changed
    wait_for("its line in the log", lambda: re.search("repaired .*shaper: ppp1", core.log()))


def test_a_trunk_that_comes_late_is_set_up_and_one_that_an_operator_set_down_is_not(core: LinuxCore) -> None:
    ip("link set trunk0 down", "link delete trunk1", "link add trunk1 type veth peer name late")
    wait_for("trunk1", lambda: KernelReader().find_link("trunk1").is_up)
    assert not KernelReader().find_link("trunk0").is_up


def test_a_disconnect_ends_the_session_before_its_reply_and_replies_while_accel_ppp_hangs(
    core: LinuxCore,
) -> None:
    last = core.call("DisconnectSession", id=1)["session"]
    assert (last["id"], last["username"]) == (1, "user0")
    assert core.states() == {2: "active"}
    assert core.events()[-1]["reason"] == "admin_disconnect"
    assert "terminate sid 0000000000000000 soft" in core.accel.commands()
    core.accel.faults(cli="hang")
    with pytest.raises(ErrorReply, match="SessionsConnected") as raised:
        core.call("DisconnectSession", id=2)
    told = json.loads(bytes(raised.value.parameters))
    assert told == {"connected": 1, "ended": [], "reason": "not gone after 2.5 s, may end later"}
    assert core.states() == {2: "active"}


def test_a_silent_accel_ppp_makes_sessions_stale_and_ends_none(core: LinuxCore) -> None:
    # It hangs up without a byte.
    core.accel.faults(cli=0)
    wait_for("stale sessions", lambda: core.states() == {1: "stale", 2: "stale"})
    assert core.call("GetHealth")["unavailable_sources"] == ["accel-ppp"]
    core.accel.down(BOB.sid)
    core.accel.faults(cli=None)
    # What it lists no longer has ended, and nothing else.
    wait_for("its reply", lambda: core.states() == {1: "active"})
    assert core.told() == [("up", 1), ("up", 2), ("down", 2)]


def hears(*lines: str) -> bytes:
    """All that accel-ppp says to a local process that sends these lines."""
    with socket.create_connection(("127.0.0.1", 2001), timeout=PATIENCE) as peer:
        peer.sendall("".join(f"{line}\n" for line in (*lines, "exit")).encode())
        return b"".join(iter(lambda: peer.recv(4096), b""))


def test_a_local_process_without_the_password_of_accel_ppp_ends_no_session(core: LinuxCore) -> None:
    wait_for("the password", lambda: hears("show version") == b"")
    assert hears(f"terminate sid {ALICE.sid} hard") == hears("guess", "show version") == b""
    password = (core.root / PASSWORD).read_text().strip().removeprefix("password=")
    assert hears(password, "show version") == f"{VERSION}\r\n".encode()
    assert not [command for command in core.accel.commands() if command.startswith("terminate")]
    core.kill()
    core.start()
    # It would see an accel-ppp that has started, and has no sessions yet.
    core.process.send_signal(signal.SIGSTOP)
    core.accel.kill()
    core.accel.start()
    core.accel.up(ALICE, BOB)
    core.process.send_signal(signal.SIGCONT)
    wait_for("the sessions", lambda: core.states() == {1: "active", 2: "active"})
    # It stays, and is in one file.
    assert (core.root / PASSWORD).read_text() == f"password={password}\n"
    shown = json.dumps([core.call("GetConfiguration"), core.call("ListChanges")])
    assert password not in core.log() + shown
    folders = map(str, (core.root / "var/lib", core.root / "run", core.folder))
    assert said("grep", "-rlF", password, *folders) == f"{core.root / PASSWORD}\n"


def test_dependencies_are_told_at_once_while_accel_ppp_hangs(core: LinuxCore) -> None:
    def states() -> dict[str, str]:
        return {one["name"]: one["state"] for one in core.call("GetDependencies")["dependencies"]}

    wait_for("a look at each", lambda: states()["radius"] == "unused")
    core.accel.faults(radius=(False, 9, 2, 2))
    core.call(
        "EditCandidate", edits=[edit("radius.server", "192.0.2.1"), edit("radius.secret", "between-us")]
    )
    core.call("CommitCandidate", author="test")
    wait_for("time-outs of RADIUS", lambda: states()["radius"] == "degraded")
    assert (states()["accel-ppp"], states()["frr"]) == ("ok", "unused")
    core.accel.faults(cli="hang")
    wait_for(
        "accel-ppp to be missed", lambda: (states()["accel-ppp"], states()["radius"]) == ("failed", "unknown")
    )


def edit(path: str, value: object) -> dict[str, str]:
    return {"action": "set", "path": path, "value_json": json.dumps(value)}


def in_effect(core: LinuxCore) -> tuple[object, ...]:
    """What runs: the configuration, steering and the pool, the trunks, the file of accel-ppp."""
    return (
        core.call("GetConfiguration")["configuration"],
        said("ip", "rule"),
        # Without what is no route, such as a link that is down.
        *(sorted(said("ip", "route", "show", "table", table).splitlines()) for table in ("100", "main")),
        {link.name: link.is_up for link in KernelReader().read_links().values()},
        (core.root / SERVICES_FOLDER.relative_to("/") / "accel-ppp.conf").read_text(),
    )


def refused(core: LinuxCore, **changes: object) -> object:
    """Commits changes by their paths, `__` for the dot, and returns the error."""
    edits = [edit(path.replace("__", "."), value) for path, value in changes.items()]
    core.call("EditCandidate", edits=edits)
    with pytest.raises(ErrorReply, match="StepFailed") as raised:
        core.call("CommitCandidate", author="test")
    return json.loads(bytes(raised.value.parameters))


def test_what_the_kernel_refuses_makes_the_commit_fail_with_all_as_before(core: LinuxCore) -> None:
    # Two links of one address on one link cannot be up.
    for name in ("taken", "trunk8", "trunk9"):
        ip(f"link add {name} link trunk0 type macvlan")
    ip(*(f"link set {name} address 02:00:00:00:00:99" for name in ("trunk9", "taken")), "link set taken up")
    before = in_effect(core)
    trunks = ["trunk0", "trunk1", "trunk8", "trunk9"]
    error = refused(core, interfaces__trunks=trunks, demux__trunks=trunks)
    assert error == {"step": "set the trunks up", "reason": "cannot set trunk9 up: Address already in use"}
    assert in_effect(core) == before
    core.call("DiscardCandidate")
    # No network of cgnat0 has this gateway.
    error = refused(
        core,
        cgnat__handoff_gateway="10.9.9.9",
        cgnat__vrf_table=200,
        cgnat__source_range="100.64.0.0/16",
        system__hostname="bng2",
    )
    reason = "cannot steer by 0.0.0.0/0: Network is unreachable"
    assert error == {"step": "steer the sessions", "reason": reason}
    assert in_effect(core) == before
    # The pool is in the main table.
    assert said("ip", "route", "show", "table", "all", "type", "unreachable").count("100.64.0.0/16") == 0
    assert core.states() == {1: "active", 2: "active"}
    # A comparison during the commit may have seen the refusal too.
    wait_for("no fault", lambda: core.call("ListFaults")["faults"] == [])
    core.call("EditCandidate", edits=[edit("cgnat.handoff_gateway", "10.255.1.3")])
    core.call("CommitCandidate", author="test")
    assert "from 100.64.0.0/16 lookup 200" in said("ip", "rule")
    assert f"{ALICE.ip} dev ppp0" in said("ip", "route", "show", "table", "200")


def committed(core: LinuxCore, path: str, value: object) -> list[int]:
    """Commits a change, and returns the sessions that it ends, as foreseen and as told."""
    core.call("EditCandidate", edits=[edit(path, value)])
    foreseen = core.call("CompareConfiguration")["impact"]
    impact = core.call("CommitCandidate", author="test")["impact"]
    assert impact == foreseen
    assert impact["sessions_dropped"] == len(impact["sessions"])
    ids: list[int] = impact["sessions"]
    return ids


def test_a_commit_ends_the_sessions_that_it_has_no_place_for_and_no_other(core: LinuxCore) -> None:
    ip("link add trunk0.3000 type veth peer name far", "link set trunk0.3000 up")
    dave = replace(subscriber(600), inbound="trunk0.3000")

    def is_served() -> bool:
        return (rates().get("ppp600"), dave.ip in steered()) == (DEFAULT, True)

    come(core, dave)
    wait_for("its data plane", is_served)
    # A removed profile ends the sessions on its VLANs.
    (profile, *others) = core.call("GetConfiguration")["configuration"]["demux"]["vlan_profiles"]
    profiles = [{**profile, "vlan_range": "2000-3999"}, *others]
    assert committed(core, "demux.vlan_profiles", profiles) == [1, 2]
    wait_for("the ends", lambda: core.states() == {3: "active"})
    come(core, replace(CAROL, inbound="trunk0.3000"))
    wait_for("another session", lambda: core.states().get(4) == "active")
    # A moved range ends those outside.
    assert committed(core, "cgnat.source_range", "100.64.2.0/23") == [4]
    wait_for("its end", lambda: core.states() == {3: "active"})
    wait_for("the end of the others' routes", lambda: steered() == {dave.ip})
    assert is_served()
    assert "from 100.64.2.0/23 lookup 100" in said("ip", "rule")
    assert committed(core, "cgnat.source_range", "100.64.0.0/10") == []
    assert core.states() == {3: "active"} and is_served()
    downs = [event for event in core.events() if event["event"] == "session.down"]
    assert [event["reason"] for event in downs] == ["admin_disconnect"] * 3


def restarts(core: LinuxCore) -> int:
    return core.accel.commands().count("restart hard")


def test_a_switch_to_radius_restarts_accel_ppp_and_ends_its_sessions(core: LinuxCore) -> None:
    core.call("EditCandidate", edits=[edit("radius.secret", "between-us")])
    assert committed(core, "radius.server", "192.0.2.1") == [1, 2]
    wait_for("the restart", lambda: restarts(core) == 1)
    wait_for("the ends", lambda: core.states() == {})
    assert {event["reason"] for event in core.events()[2:]} == {"admin_disconnect"}
    core.kill()
    core.start()
    come(core, CAROL)
    wait_for("a session", lambda: core.states() == {3: "active"})
    # Of the same module.
    assert committed(core, "radius.server", "192.0.2.2") == []
    assert (core.states(), restarts(core)) == ({3: "active"}, 1)


def test_a_restart_of_accel_ppp_that_a_killed_core_owes_is_made_up_for(core: LinuxCore) -> None:
    core.call("EditCandidate", edits=[edit("radius.secret", "between-us")])
    core.accel.faults(restart="not now")
    committed(core, "radius.server", "192.0.2.1")
    wait_for("the attempt", lambda: "a commit is not finished" in core.log())
    core.kill()
    core.accel.faults(restart="")
    core.start()
    wait_for("the restart", lambda: restarts(core) == 2)


def test_a_core_killed_after_a_commit_ends_the_sessions_of_its_impact_unless_they_are_allowed_again(
    core: LinuxCore,
) -> None:
    def commit_and_kill() -> None:
        core.accel.faults(deaf=True)
        assert committed(core, "cgnat.source_range", "100.64.2.0/23") == [1, 2]
        core.kill()

    def start() -> None:
        core.accel.faults(deaf=False)
        core.start()
        wait_for("nothing left to end", lambda: not (core.root / OWED).exists())

    commit_and_kill()
    core.start()
    assert committed(core, "cgnat.source_range", "100.64.0.0/10") == []
    core.kill()
    start()
    wait_for("both", lambda: core.states() == {1: "active", 2: "active"})
    commit_and_kill()
    come(core, subscriber(600))
    start()
    wait_for("the ends", lambda: core.states() == {3: "active"})
    ends = [event["reason"] for event in core.events() if event["event"] == "session.down"]
    assert ends == ["admin_disconnect"] * 2


def test_a_return_at_a_start_ends_the_sessions_that_began_with_what_it_undoes(core: LinuxCore) -> None:
    assert committed(core, "demux.trunks", ["trunk0"]) == []
    core.call("EditCandidate", edits=[edit("demux.trunks", ["trunk0", "trunk1"])])
    deadline = core.call("CommitCandidate", author="test", confirm_seconds=20)["confirm_deadline"]
    ip("link add trunk1.1000 type veth peer name far", "link set trunk1.1000 up")
    come(core, replace(CAROL, inbound="trunk1.1000"))
    wait_for("a session on the trunk", lambda: core.states().get(3) == "active")
    core.kill()
    # In whole seconds of the wall clock, rounded up.
    time.sleep(deadline - time.time())
    core.start()
    assert core.call("GetConfiguration")["configuration"]["demux"]["trunks"] == ["trunk0"]
    wait_for("its end", lambda: core.states() == {1: "active", 2: "active"})


def test_a_core_starts_though_the_kernel_refuses_the_steering_and_repairs_it(core: LinuxCore) -> None:
    core.kill()
    ip("address flush dev cgnat0")
    core.start()
    wait_for("the fault", lambda: [each["object"] for each in core.call("ListFaults")["faults"]])
    assert core.call("ListFaults")["faults"][0]["object"] == "0.0.0.0/0"
    ip("address add 10.255.1.1/24 dev cgnat0")
    wait_for("the repair", lambda: core.call("ListFaults")["faults"] == [])
    assert "via 10.255.1.2 dev cgnat0" in said("ip", "route", "show", "table", "100")


def test_a_killed_core_finds_its_sessions_with_ids_rates_and_steering(core: LinuxCore) -> None:
    core.call("SetSessionRate", id=2, rate_down_bps=7_000_000, rate_up_bps=3_000_000)
    before, shapers = core.sessions(), rates()
    core.kill()
    core.start()
    wait_for("active sessions", lambda: core.states() == {1: "active", 2: "active"})
    assert core.sessions() == before
    come(core, CAROL)
    wait_for("another session", lambda: rates().get("ppp2") == DEFAULT)
    wait_for("its steering", lambda: steered() == {ALICE.ip, BOB.ip, CAROL.ip})
    assert core.told() == [("up", 3)]
    assert rates() == {**shapers, "ppp2": DEFAULT}
    assert core.repairs() == {}
    assert "removed kernel state that belongs to no session" not in core.log()
    # A rate that expires: the kernel has the former one first.
    core.call("SetSessionRate", id=2, rate_down_bps=9_000_000, expires_in=2)
    assert rates()["ppp1"] == (9_000_000, 3_000_000)
    core.kill()
    core.start()
    wait_for("the former rate", lambda: rates()["ppp1"] == (7_000_000, 3_000_000))

    def recorded() -> tuple[int, int | None]:
        session = core.call("GetSession", id=2)["session"]
        return session["rate_down_bps"], session["rate_expires_at"]

    wait_for("its record", lambda: recorded() == (7_000_000, None))
