"""Varlink messages as bytes, without a socket."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_api.wire.varlink.protocol import (
    CallMessage,
    ErrorReply,
    MessageBuffer,
    MessageTooLarge,
    ProtocolError,
    Reply,
    decode_call,
    decode_reply,
    encode,
)

CAP = 100


def all_messages(buffer: MessageBuffer) -> list[bytes]:
    found = []
    while (message := buffer.next_message()) is not None:
        found.append(message)
    return found


def test_a_buffer_that_was_fed_nothing_needs_more() -> None:
    assert MessageBuffer(CAP).next_message() is None


@pytest.mark.parametrize("split", range(1, 8))
def test_two_messages_come_out_whole_wherever_they_were_split(split: int) -> None:
    stream = b"abc\0def\0"
    buffer = MessageBuffer(CAP)
    buffer.feed(stream[:split])
    found = all_messages(buffer)
    buffer.feed(stream[split:])
    assert found + all_messages(buffer) == [b"abc", b"def"]


def test_messages_come_out_whole_when_fed_byte_by_byte() -> None:
    buffer = MessageBuffer(CAP)
    found = []
    for byte in b"abc\0def\0":
        buffer.feed(bytes([byte]))
        found += all_messages(buffer)
    assert found == [b"abc", b"def"]


def test_many_messages_in_one_piece_come_out_in_order() -> None:
    sent = [str(number).encode() for number in range(1000)]
    buffer = MessageBuffer(CAP)
    buffer.feed(b"".join(message + b"\0" for message in sent))
    assert all_messages(buffer) == sent


def test_the_length_of_a_buffer_is_what_no_message_has_taken() -> None:
    buffer = MessageBuffer(CAP)
    buffer.feed(b"abc\0de")
    buffer.next_message()
    assert len(buffer) == 2


def test_an_empty_message_is_a_message() -> None:
    buffer = MessageBuffer(CAP)
    buffer.feed(b"\0")
    assert buffer.next_message() == b""


def test_a_message_of_exactly_the_cap_is_taken() -> None:
    buffer = MessageBuffer(CAP)
    buffer.feed(b"x" * CAP + b"\0")
    assert buffer.next_message() == b"x" * CAP


def test_a_message_of_exactly_the_cap_may_still_get_its_end() -> None:
    buffer = MessageBuffer(CAP)
    buffer.feed(b"x" * CAP)
    assert buffer.next_message() is None
    buffer.feed(b"\0")
    assert buffer.next_message() == b"x" * CAP


@pytest.mark.parametrize("end", [b"", b"\0"])
def test_a_message_of_one_byte_over_the_cap_is_refused_with_or_without_its_end(end: bytes) -> None:
    buffer = MessageBuffer(CAP)
    buffer.feed(b"x" * (CAP + 1) + end)
    with pytest.raises(MessageTooLarge):
        buffer.next_message()


def test_the_cap_is_for_one_message_and_not_for_all_that_wait() -> None:
    buffer = MessageBuffer(CAP)
    buffer.feed((b"x" * CAP + b"\0") * 5)
    assert len(all_messages(buffer)) == 5


def test_the_cap_holds_for_a_message_behind_another() -> None:
    buffer = MessageBuffer(CAP)
    buffer.feed(b"abc\0" + b"x" * (CAP + 1))
    assert buffer.next_message() == b"abc"
    with pytest.raises(MessageTooLarge):
        buffer.next_message()


@given(
    st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"\0", b"")), max_size=20),
    st.lists(st.integers(1, 30), min_size=1),
)
def test_any_messages_in_any_pieces_come_out_the_same(sent: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(message + b"\0" for message in sent)
    buffer = MessageBuffer(CAP)
    found = []
    turn = 0
    while stream:
        size = sizes[turn % len(sizes)]
        buffer.feed(stream[:size])
        stream = stream[size:]
        found += all_messages(buffer)
        turn += 1
    assert found == sent


def test_a_call_is_the_same_after_its_way_over_the_wire() -> None:
    wire = encode(CallMessage("a.b.C", msgspec.Raw(b'{"id":7}'), more=True))
    call = decode_call(wire[:-1])
    assert (call.method, bytes(call.parameters), call.oneway, call.more) == (
        "a.b.C",
        b'{"id":7}',
        False,
        True,
    )


def test_an_encoded_message_has_one_nul_and_ends_with_it() -> None:
    wire = encode(Reply(parameters=msgspec.Raw(msgspec.json.encode({"text": "a\0b"}))))
    assert wire.index(0) == len(wire) - 1


@given(st.text())
def test_any_text_in_parameters_comes_out_the_same(text: str) -> None:
    wire = encode(Reply(parameters=msgspec.Raw(msgspec.json.encode({"text": text}))))
    assert msgspec.json.decode(decode_reply(wire[:-1]).parameters) == {"text": text}


def test_the_parameters_of_a_reply_stay_the_bytes_that_came() -> None:
    reply = decode_reply(b'{"parameters": {"a" :  1.0, "b":[ ]} }')
    assert bytes(reply.parameters) == b'{"a" :  1.0, "b":[ ]}'


@pytest.mark.parametrize("message", [b"{}", b'{"parameters":null}', b'{"parameters":{}}'])
def test_absent_and_null_parameters_of_a_reply_are_an_empty_object(message: bytes) -> None:
    assert bytes(decode_reply(message).parameters) == b"{}"


def test_absent_parameters_of_a_call_are_an_empty_object() -> None:
    assert bytes(decode_call(b'{"method":"a.b"}').parameters) == b"{}"


@pytest.mark.parametrize("parameters", [b"[]", b"1", b'"text"', b"true", b"-1"])
def test_parameters_of_a_reply_that_are_no_object_are_refused(parameters: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_reply(b'{"parameters":%s}' % parameters)


NOT_JSON = (
    b"", b" ", b"hello", b"{", b'{"method":"a.b"', b'{"method":"a.b"} x', b'{"method":"a.b",}',
    b"{'method':'a.b'}", b"\xef\xbb\xbf{}", b"\xff", b"NaN",
)  # fmt: skip


def test_a_call_that_is_no_json_is_refused() -> None:
    for message in NOT_JSON:
        with pytest.raises(ProtocolError):
            decode_call(message)


def test_a_reply_that_is_no_json_is_refused() -> None:
    for message in NOT_JSON:
        with pytest.raises(ProtocolError):
            decode_reply(message)


def test_a_call_of_another_shape_is_refused() -> None:
    for message in (
        b"[]",
        b"null",
        b"1",
        b'"a.b"',
        b"{}",
        b'{"method":null}',
        b'{"method":1}',
        b'{"method":["a.b"]}',
        b'{"method":"a.b","oneway":1}',
        b'{"method":"a.b","more":"yes"}',
        b'{"method":"a.b","upgrade":null}',
    ):
        with pytest.raises(ProtocolError):
            decode_call(message)


def test_a_reply_of_another_shape_is_refused() -> None:
    for message in (b"[]", b"null", b"1", b'"x"', b'{"error":1}', b'{"error":["a"]}', b'{"continues":1}'):
        with pytest.raises(ProtocolError):
            decode_reply(message)


def test_fields_that_nobody_knows_are_passed_over() -> None:
    assert decode_reply(b'{"error":"a.B","later":[1]}').error == "a.B"


@pytest.mark.parametrize("bad", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xe2\x82", b"\xf5\x80\x80\x80"])
def test_parameters_that_are_no_utf8_are_refused(bad: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_reply(b'{"parameters":{"name":"%s"}}' % bad)


@pytest.mark.parametrize(
    "parameters", [b'{"a":nul}', b'{"a":01}', b'{"a":"\n"}', b'{"a":"\\x"}', b'{"a":1,}']
)
def test_parameters_that_are_broken_inside_are_refused(parameters: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_reply(b'{"parameters":%s}' % parameters)


@pytest.mark.parametrize("brackets", [b"[" * 20_000, b"[" * 20_000 + b"]" * 20_000])
def test_20000_nested_brackets_are_refused(brackets: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_reply(b'{"parameters":{"a":%s}}' % brackets)
    with pytest.raises(ProtocolError):
        decode_call(b'{"method":"a.b","parameters":{"a":%s}}' % brackets)


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode_call(b'{"method":"\\ud800"}')
    with pytest.raises(ProtocolError):
        decode_reply(b'{"parameters":{"name":"\\ud800"}}')


@given(st.binary())
def test_any_bytes_are_a_message_or_a_protocol_error(message: bytes) -> None:
    for decode in (decode_call, decode_reply):
        try:
            assert isinstance(decode(message), CallMessage | Reply)
        except ProtocolError as error:
            assert str(error)


def test_an_error_reply_carries_its_fields() -> None:
    error = ErrorReply.of("a.B", parameter="id")
    assert (error.name, bytes(error.parameters)) == ("a.B", b'{"parameter":"id"}')
