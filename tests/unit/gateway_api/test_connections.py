"""Which clients may keep a worker waiting, for how long, and which make room for others."""

import pytest

from gateway_api.serving.connections import Connection, Connections, Limits, NoRoom, Phase
from tests.support.clocks import SteppedClock


class Table:
    """Connections with small limits, and the names of those that were ended."""

    def __init__(self, **limits: int) -> None:
        self.clock = SteppedClock()
        self.ended: list[str] = []
        self.limits = Limits(**limits)
        self.connections = Connections(self.clock, self.limits)

    def admit(self, name: str, address: str = "192.0.2.1") -> Connection:
        return self.connections.admit(address, lambda: self.ended.append(name))

    def waiting(self, name: str, address: str = "192.0.2.1") -> Connection:
        """One that came a second after the one before."""
        self.clock.now += 1
        return self.admit(name, address)

    def ends_after(self) -> float:
        """Seconds until a sweep ends the only one that is left, which must not be before."""
        began = self.clock.now
        while not self.connections.end_overdue():
            assert not self.ended
            self.clock.now += 0.5
            assert self.clock.now < began + 10_000
        assert not self.connections
        return self.clock.now - began


@pytest.fixture
def table() -> Table:
    return Table()


def work(connection: Connection) -> Connection:
    """The head of a request has come, and waits for us."""
    with connection.wait_for_request():
        pass
    return connection


def test_a_handshake_and_the_first_request_have_10_seconds_each_and_the_next_has_30(table: Table) -> None:
    table.admit("a")
    assert table.ends_after() == 10
    table.ended.clear()
    connection = table.admit("b")
    table.clock.now += 9
    with connection.wait_for_request():
        table.clock.now += 6
        # A head gets no more time by coming in pieces.
        with connection.wait_for_body():
            pass
        with connection.wait_for_body():
            assert table.ends_after() == 4
    table.ended.clear()
    connection = table.admit("c")
    work(connection)
    # Work of ours has no deadline.
    table.clock.now += 10_000
    assert not table.connections.end_overdue()
    assert connection.phase is Phase.WORK
    with connection.wait_for_request():
        assert table.ends_after() == 30


def test_each_body_has_20_seconds_however_many_pieces_it_comes_in(table: Table) -> None:
    connection = work(table.admit("a"))
    with connection.wait_for_body():
        table.clock.now += 15
    work(connection)
    for _ in range(19):
        with connection.wait_for_body():
            table.clock.now += 1
    with connection.wait_for_body():
        assert table.ends_after() == 1


def test_an_answer_has_10_seconds_and_one_for_each_32_kb(table: Table) -> None:
    connection = work(table.admit("a"))
    with connection.wait_for_receiver(bytes(64 << 10)):
        assert table.ends_after() == 12


def test_an_answer_inside_another_wait_keeps_its_deadline_and_a_sweep_tells_what_was_not_done(
    table: Table,
) -> None:
    table.admit("a")
    table.admit("b")
    connection = table.admit("c")
    with connection.wait_for_request():
        with connection.wait_for_receiver(bytes(64 << 10)):
            assert connection.phase is Phase.HEADER
        table.clock.now += 11
        assert table.connections.end_overdue() == {Phase.HANDSHAKE: 2, Phase.HEADER: 1}
    assert connection.phase is Phase.WORK
    assert sorted(table.ended) == ["a", "b", "c"]


def test_a_stream_has_no_deadline_and_takes_nobodys_place() -> None:
    table = Table(max_connections=2, max_per_address=2)
    for name in ("a", "b", "c"):
        connection = work(table.admit(name))
        connection.begin_stream()
    table.clock.now += 10_000
    with connection.wait_for_receiver(bytes(100)):
        assert not table.connections.end_overdue()
    assert len(table.connections) == 3
    assert not table.ended


def test_who_has_been_waited_for_longest_makes_room_for_one_of_the_same_address_and_of_all() -> None:
    table = Table(max_per_address=3, max_connections=5)
    for name in "abc":
        table.waiting(name)
    table.waiting("another", "192.0.2.2")
    table.waiting("d")
    assert table.ended == ["a"]
    table.waiting("e")
    assert table.ended == ["a", "b"]
    table.waiting("f", "192.0.2.3")
    assert table.ended == ["a", "b"]
    table.waiting("g", "192.0.2.4")
    assert table.ended == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("one", "other"),
    [("2001:db8::1", "2001:db8::f:1"), ("::ffff:192.0.2.1", "192.0.2.1"), ("fe80::1%eth0", "fe80::2%eth1")],
)
def test_one_clients_addresses_count_as_one(one: str, other: str) -> None:
    table = Table(max_per_address=1)
    table.waiting("of another network", "2001:db8:0:1::1")
    table.waiting("a", one)
    table.waiting("b", other)
    assert table.ended == ["a"]


def test_a_place_is_free_again_when_its_connection_is_closed() -> None:
    table = Table(max_per_address=1, max_connections=1)
    first = table.waiting("a")
    table.connections.remove(first)
    table.connections.remove(first)
    table.waiting("b")
    assert not table.ended
    assert len(table.connections) == 1


def test_the_slowest_of_those_who_take_their_answers_makes_room_for_the_next_answer() -> None:
    table = Table(max_unsent_bytes=1000)
    a, b, c = (work(table.waiting(name)) for name in "abc")
    with a.wait_for_receiver(bytes(400)):
        table.clock.now += 1
        with b.wait_for_receiver(bytes(400)):
            assert not table.ended
            with c.wait_for_receiver(bytes(400)):
                assert table.ended == ["a"]
    # A single one may be larger than all may be.
    with b.wait_for_receiver(bytes(5000)):
        assert table.ended == ["a"]


def test_an_answer_that_several_take_counts_once() -> None:
    table = Table(max_unsent_bytes=1000)
    shared = bytes(900)
    a, b, c = (work(table.waiting(name)) for name in "abc")
    with a.wait_for_receiver(shared), b.wait_for_receiver(shared), c.wait_for_receiver(shared):
        assert not table.ended
    # Nobody else takes them any more, so their room is free.
    with a.wait_for_receiver(bytes(900)):
        assert not table.ended
        table.clock.now += 1
        with b.wait_for_receiver(bytes(200)):
            assert table.ended == ["a"]


def test_few_places_have_a_part_for_this_machine_s_own() -> None:
    few = Limits().limit_to(80)
    assert (few.max_connections, few.loopback_reserve) == (70, 10)
    many = Limits().limit_to(Limits().max_connections + Limits().loopback_reserve)
    assert many == Limits()


def test_who_comes_is_turned_away_where_all_wait_for_us() -> None:
    table = Table(max_connections=2)
    for name in "ab":
        work(table.admit(name, f"192.0.2.{ord(name)}"))
    with pytest.raises(NoRoom):
        table.admit("c", "192.0.2.3")
    assert not table.ended
    assert len(table.connections) == 2
    assert (table.connections.take_rejection_count(), table.connections.take_rejection_count()) == (1, 0)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_some_room_is_for_this_machine_s_own(address: str) -> None:
    table = Table(max_connections=2, loopback_reserve=1)
    for name in "ab":
        work(table.admit(name, f"192.0.2.{ord(name)}"))
    work(table.admit("own", address))
    with pytest.raises(NoRoom):
        table.admit("c", address)


def test_who_has_asked_nothing_yet_ends_at_a_stop_but_a_little_later(table: Table) -> None:
    table.admit("handshake")
    with table.admit("head").wait_for_request():
        table.clock.now += 1.9
        table.connections.end_without_request(0.5, 2)
        assert not table.ended
        table.clock.now += 0.2
        table.connections.end_without_request(0.5, 2)
    assert sorted(table.ended) == ["handshake", "head"]


def test_idle_ones_end_at_a_stop_and_those_under_way_do_not(table: Table) -> None:
    idle, _ = (work(table.admit(name)) for name in ("idle", "asking"))
    coming = table.admit("coming")
    with idle.wait_for_request(), coming.wait_for_request():
        table.connections.end_without_request(0.5, 2)
        assert not table.ended
        table.clock.now += 0.5
        table.connections.end_without_request(0.5, 2)
        assert table.ended == ["idle"]
        table.connections.end_all()
    assert sorted(table.ended) == ["asking", "coming", "idle"]
