"""Any order of what subscribers, operators and commits do to the lab: its sessions, events, lists, counters
and VLANs agree after each step."""

from collections import Counter
from ipaddress import IPv4Address
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway_contract.core.impact import Impact
from gateway_contract.core.network import Interface
from gateway_contract.core.sessions import SessionDetail, SessionFilter, SessionSummary
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.lab.gateway import LabGateway
from gateway_core.gateways.lab.population import Population
from gateway_core.records.paging import Rows
from gateway_core.sessions.journal import Journal
from gateway_core.sessions.session import MAX_NAME_LENGTH, Counters, Session
from tests.support.clocks import NOW
from tests.support.core_clock import StillClock
from tests.support.documents import valid_document

RANGES = st.sampled_from(["100.64.0.0/10", "100.100.0.0/16", "198.18.0.0/16", "100.64.0.0/29"])
TRUNKS = st.permutations(["trunk0", "trunk1", "trunk2"]).flatmap(
    lambda names: st.integers(0, 3).map(lambda number: names[:number])
)
#: Parts of a second that a float has exactly.
SECONDS = st.sampled_from([0.0625, 1.0, 7.25, 60.0, 301.0])
LATE = st.sampled_from([0.0, 0.0, 4.0])
NUMBERS = st.integers(0, 1000)


def made(rows: Rows) -> list[Any]:
    return [record for _, record in rows.rows_after(None, None)]


class Told(Journal):
    """Keeps the ids of the sessions that came, and all of those that ended."""

    def __init__(self) -> None:
        super().__init__("life")
        self.came: list[int] = []
        self.ended: list[tuple[SessionSummary, str, Counters]] = []

    def add_session_up(self, session: SessionSummary, at: float) -> None:
        self.came.append(session.id)

    def add_session_down(self, session: SessionSummary, reason: str, at: float, counters: Counters) -> None:
        self.ended.append((session, reason, counters))


class Lab(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.document = valid_document()
        self.clock = StillClock(float(NOW))
        self.journal = Told()
        #: The accounting ids of all sessions that were ever seen, by their ids.
        self.seen: dict[int, str] = {}
        #: The rates down and up that each session has to have.
        self.rates: dict[int, tuple[int, int]] = {}
        #: The name of each interface that ever was, by its index.
        self.names: dict[int, str] = {}

    @initialize(
        count=st.sampled_from([0, 1, 30, 130]),
        arrivals=st.sampled_from([0.25, 0.0, 1.0]),
        most=st.sampled_from([5, 1000]),
        source_range=RANGES,
        seed=st.integers(1, 5),
    )
    def start(self, count: int, arrivals: float, most: int, source_range: str, seed: int) -> None:
        self.document["demux"]["rate_limits"]["max_vlans"] = most
        self.document["cgnat"]["source_range"] = source_range
        self.configuration = RunningConfiguration.of(self.document).sections
        population = Population(count, arrivals, seed)
        self.gateway = LabGateway(self.configuration, population, self.journal, self.clock)
        self.first = {session.id for session in self.sessions()}
        assert len(self.first) == count or (len(self.first) < count and most == 5)

    def sessions(self) -> list[Session]:
        return self.gateway.sessions.find(SessionFilter())

    def details(self) -> list[SessionDetail]:
        found = [self.gateway.read_detail(session.id) for session in self.sessions()]
        return [one for one in found if one is not None]

    def interfaces(self) -> dict[str, Interface]:
        listed: list[Interface] = made(self.gateway.list_interfaces())
        return {interface.name: interface for interface in listed}

    def any_session(self, number: int) -> Session:
        sessions = self.sessions()
        return sessions[number % len(sessions)]

    def those_who_came_have_the_rates_of_the_configuration(self) -> None:
        qos = self.configuration.qos
        for session in self.sessions():
            wanted = self.rates.setdefault(session.id, (qos.default_down, qos.default_up))
            assert (session.summary.rate_down, session.summary.rate_up) == wanted

    def all_ended_by_the_admin(self, before: int) -> None:
        assert {reason for _, reason, _ in self.journal.ended[before:]} <= {"admin_disconnect"}

    # What happens

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        before = {one.id: one for one in self.details()}
        self.clock.now += seconds
        self.gateway.advance()
        for now in self.details():
            if was := before.get(now.id):
                down, up = now.bytes_out - was.bytes_out, now.bytes_in - was.bytes_in
                # The part of a byte that was there before may make one more.
                assert abs(down - was.rate_down_bps * seconds / 8) <= 1
                assert abs(up - was.rate_up_bps * seconds / 8) <= 1

    @precondition(lambda self: self.sessions())
    @rule(number=NUMBERS)
    def a_session_is_disconnected(self, number: int) -> None:
        session, others, ended = self.any_session(number), self.sessions(), len(self.journal.ended)
        others.remove(session)
        assert [self.gateway.read_detail(session.id)] == self.gateway.disconnect([session.id])
        assert self.gateway.disconnect([session.id]) == []
        assert self.gateway.set_rate(session.id, 1, 1) is None
        assert self.gateway.read_detail(session.id) is None
        assert self.sessions() == others
        self.all_ended_by_the_admin(ended)

    @precondition(lambda self: self.sessions())
    @rule(number=NUMBERS)
    def an_access_interface_is_disconnected(self, number: int) -> None:
        sessions, ended = self.sessions(), len(self.journal.ended)
        name = self.any_session(number).access_interface
        there = [one for one in sessions if one.access_interface == name]
        assert self.gateway.has_interface(name)
        ids = [one.id for one in there]
        assert [one.id for one in self.gateway.disconnect(ids)] == ids
        assert self.sessions() == [one for one in sessions if one not in there]
        self.all_ended_by_the_admin(ended)

    @precondition(lambda self: self.sessions())
    @rule(number=NUMBERS, down=st.integers(1, 8_000_000), up=st.integers(1, 800_000), late=LATE)
    def a_rate_changes(self, number: int, down: int, up: int, late: float) -> None:
        id = self.any_session(number).id
        # Some are due to come and to go.
        self.clock.now += late
        changed = self.gateway.set_rate(id, down, up)
        if changed is None:
            assert late
            assert self.gateway.read_detail(id) is None
            return
        before, after = changed
        assert after == self.gateway.read_detail(id)
        assert (after.bytes_in, after.bytes_out) == (before.bytes_in, before.bytes_out)
        assert (after.packets_in, after.packets_out) == (before.packets_in, before.packets_out)
        self.rates[id] = down, up

    @rule(
        is_enabled=st.booleans(), source_range=RANGES, down=st.sampled_from(["100mbit", "250mbit"]), late=LATE
    )
    def addresses_and_rates_are_committed(
        self, is_enabled: bool, source_range: str, down: str, late: float
    ) -> None:
        self.document["cgnat"] |= {"enabled": is_enabled, "source_range": source_range}
        self.document["qos"]["default_down"] = down
        self.commit(late)

    @rule(trunks=TRUNKS, skipped=st.sampled_from([0, 0, 1]), keeps_profiles=st.booleans(), late=LATE)
    def trunks_are_committed(
        self, trunks: list[str], skipped: int, keeps_profiles: bool, late: float
    ) -> None:
        self.document["interfaces"]["trunks"] = trunks
        self.document["demux"]["trunks"] = trunks[skipped:]
        profiles = valid_document()["demux"]["vlan_profiles"]
        self.document["demux"]["vlan_profiles"] = profiles if keeps_profiles else []
        self.commit(late)

    def commit(self, late: float) -> None:
        wanted = RunningConfiguration.of(self.document).sections
        self.clock.now += late
        impact, before = self.gateway.preview_impact(wanted), self.sessions()
        self.those_who_came_have_the_rates_of_the_configuration()
        ended, listed = len(self.journal.ended), self.interfaces()
        with self.gateway.freeze_sessions(wanted) as ended_now:
            # Nobody comes or goes between the announcement and the change.
            self.clock.now += late
            self.gateway.configure(wanted)
        kept = [one.id for one in before if one.access_interface.partition(".")[0] in wanted.demux.trunks]
        assert [one.id for one in self.sessions()] == kept
        assert ended_now == impact == Impact.of([one.id for one in before if one.id not in kept])
        self.all_ended_by_the_admin(ended)
        for name, one in self.interfaces().items():
            assert name not in listed or one.ifindex == listed[name].ifindex
        self.configuration = wanted

    # What is true after each step

    @invariant()
    def an_id_is_of_one_session_forever_and_has_one_event_for_each_end(self) -> None:
        for session in self.sessions():
            assert self.seen.setdefault(session.id, session.acct_session_id) == session.acct_session_id
        came, ended = Counter(self.journal.came), Counter(one.id for one, _, _ in self.journal.ended)
        assert {*came.values(), *ended.values()} <= {1}
        assert {*self.seen} <= {*self.first, *came}
        assert self.first.isdisjoint(came)
        assert [session.id for session in self.sessions()] == sorted((self.first | {*came}) - {*ended})

    @invariant()
    def a_session_is_steered_where_cgnat_has_its_address(self) -> None:
        cgnat, steered = self.configuration.cgnat, {}
        for session in self.sessions():
            in_range = IPv4Address(session.summary.ip_address) in cgnat.source_range
            assert session.vrf_steered == (cgnat.enabled and in_range)
            if session.vrf_steered:
                steered[session.id] = session.interface
        listed = {record.id: record for record in made(self.gateway.sessions.cgnat_sessions())}
        assert {id: record.interface for id, record in listed.items()} == steered
        for one in listed.values():
            assert (one.vrf_name, one.vrf_table) == ("cgnat", 100)
            assert (one.handoff_interface, one.handoff_gateway) == ("cgnat0", "10.255.1.2")

    @invariant()
    def each_session_is_shaped_at_its_rates(self) -> None:
        self.those_who_came_have_the_rates_of_the_configuration()
        records = {record.session_id: record for record in made(self.gateway.sessions.rows(Session.make_qos))}
        sessions, listed = self.sessions(), self.interfaces()
        assert set(records) == {session.id for session in sessions}
        for session in sessions:
            record = records[session.id]
            assert (record.username, record.interface) == (session.summary.username, session.interface)
            assert (record.rate_down_bps, record.rate_up_bps) == self.rates[session.id]
            assert listed[record.interface].parent == session.access_interface
            assert listed[str(record.ifb_device)].type == "ifb"
            profile = ("pppoe_ethernet", 50, 84) if session.is_pppoe else ("ipoe_qinq", 46, 84)
            assert (record.overhead_profile, record.overhead, record.mpu) == profile

    @invariant()
    def interfaces_are_those_of_the_configuration_the_vlans_and_the_sessions(self) -> None:
        listed, sessions = self.interfaces(), self.sessions()
        devices = {session.interface for session in sessions}
        vlans = {vlan.name for vlan in made(self.gateway.list_vlans())}
        vrf = {"cgnat"} if self.configuration.cgnat.enabled else set()
        fixed = {"lo", "uplink0", "cgnat0", *self.configuration.interfaces.trunks}
        assert set(listed) == devices | {f"ifb-{name}" for name in devices} | vlans | vrf | fixed
        ppp = {session.interface for session in sessions if session.is_pppoe}
        assert {name for name, one in listed.items() if one.type == "ppp"} == ppp
        assert {one.parent for one in listed.values()} - {None} <= set(listed)
        assert max(map(len, listed)) <= MAX_NAME_LENGTH
        macs = [one.mac_address for one in listed.values() if one.mac_address is not None]
        assert len(set(macs)) == len(macs)
        assert len({one.ifindex for one in listed.values()}) == len(made(self.gateway.list_interfaces()))
        for one in listed.values():
            assert self.names.setdefault(one.ifindex, one.name) == one.name

    @invariant()
    def a_session_counts_as_its_device_does(self) -> None:
        listed = self.interfaces()
        for session, one in zip(self.sessions(), self.details(), strict=True):
            stats = listed[session.interface].stats
            assert one.ppp_interface == (session.interface if session.is_pppoe else "")
            assert (stats.rx_bytes, stats.tx_bytes) == (one.bytes_in, one.bytes_out)
            assert (stats.rx_packets, stats.tx_packets) == (one.packets_in, one.packets_out)
            ifb = listed[f"ifb-{session.interface}"].stats
            assert (ifb.rx_bytes, ifb.tx_bytes) == (one.bytes_in, 0)

    @invariant()
    def a_vlan_is_there_for_its_sessions_and_limited(self) -> None:
        vlans = made(self.gateway.list_vlans())
        counted = Counter(session.access_interface for session in self.sessions())
        assert {vlan.name: vlan.session_count for vlan in vlans if vlan.session_count} == dict(counted)
        assert len(vlans) <= self.configuration.demux.rate_limits.max_vlans
        for vlan in vlans:
            assert vlan.trunk in self.configuration.demux.trunks
            tags = [str(tag) for tag in (vlan.outer_vlan_id, vlan.vlan_id) if tag is not None]
            assert vlan.name == ".".join([vlan.trunk, *tags])
            assert vlan.protocol == ("802.1Q" if vlan.outer_vlan_id is None else "802.1ad")
        tags_of = {vlan.name: (vlan.outer_vlan_id, vlan.vlan_id) for vlan in vlans}
        for one in (session.summary for session in self.sessions()):
            assert (one.outer_vlan_id, one.inner_vlan_id) == tags_of[one.access_interface]


TestLab = Lab.TestCase
TestLab.settings = settings(max_examples=80, stateful_step_count=15)
