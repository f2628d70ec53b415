"""Which event a client resumes after: its header, or the query of its URL."""

from tests.support.sse import listen, messages_in
from tests.support.stack import Api


def test_the_header_is_newer_than_the_query_of_the_url(api: Api) -> None:
    with listen(api, "?last_event_id=other-1") as stream:
        (gap,) = messages_in(bytearray(stream.read()))
    (record,) = api.get("/subscribers", params={"limit": 1, "sort": "-id"})["sessions"]
    with listen(api, "?last_event_id=other-1", headers={"Last-Event-ID": gap.id}) as stream:
        api.send("DELETE", f"/subscribers/{record['id']}")
        assert b"\nevent: session_down\n" in stream.read()


def test_an_empty_header_leaves_the_query_of_the_url(api: Api) -> None:
    with listen(api, "?last_event_id=other-1", headers={"Last-Event-ID": ""}) as stream:
        assert b"\nevent: gap\n" in stream.read()


def test_an_empty_id_in_the_query_is_none(api: Api) -> None:
    (record,) = api.get("/subscribers", params={"limit": 1, "sort": "-id"})["sessions"]
    with listen(api, "?last_event_id=") as stream:
        api.send("DELETE", f"/subscribers/{record['id']}")
        (message,) = messages_in(bytearray(stream.read()))
    assert (message.name, message.data["id"]) == ("session_down", record["id"])


def test_a_header_that_is_no_id_is_a_gap_whatever_the_query(api: Api) -> None:
    with listen(api, "?last_event_id=other-1") as stream:
        (gap,) = messages_in(bytearray(stream.read()))
    with listen(api, f"?last_event_id={gap.id}", headers={"Last-Event-ID": "garbage"}) as stream:
        assert b"\nevent: gap\n" in stream.read()
