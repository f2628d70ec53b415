"""Varlink messages as bytes, without a socket."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_contract.varlink.protocol import (
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


@given(
    st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"\0", b"")), max_size=20),
    st.lists(st.integers(1, 30), min_size=1),
)
def test_any_messages_in_any_pieces_come_out_the_same(sent: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(message + b"\0" for message in sent)
    buffer = MessageBuffer(CAP)
    found = []
    number = 0
    while stream:
        size = sizes[number % len(sizes)]
        buffer.feed(stream[:size])
        stream = stream[size:]
        found += all_messages(buffer)
        number += 1
    assert found == sent


def test_the_cap_is_for_one_message_and_not_for_all_that_wait() -> None:
    buffer = MessageBuffer(CAP)
    buffer.feed((b"x" * CAP + b"\0") * 5 + b"x" * CAP)
    assert len(all_messages(buffer)) == 5
    assert len(buffer) == CAP
    buffer.feed(b"\0")
    assert buffer.next_message() == b"x" * CAP


@pytest.mark.parametrize("end", [b"", b"\0"])
def test_a_message_of_one_byte_over_the_cap_is_refused_with_or_without_its_end(end: bytes) -> None:
    buffer = MessageBuffer(CAP)
    buffer.feed(b"abc\0" + b"x" * (CAP + 1) + end)
    assert buffer.next_message() == b"abc"
    with pytest.raises(MessageTooLarge):
        buffer.next_message()


def test_a_call_is_the_same_after_its_way_over_the_wire() -> None:
    call = CallMessage("a.b.C", msgspec.Raw(b'{"id":7}'), more=True)
    assert decode_call(encode(call)[:-1]) == call


@given(st.text())
def test_any_text_in_parameters_comes_out_the_same(text: str) -> None:
    wire = encode(Reply(parameters=msgspec.Raw(msgspec.json.encode({"text": text}))))
    assert wire.index(0) == len(wire) - 1
    assert msgspec.json.decode(decode_reply(wire[:-1]).parameters) == {"text": text}


@pytest.mark.parametrize("fields", [b"", b',"parameters":null'])
def test_parameters_stay_the_bytes_that_came_and_absent_ones_are_an_empty_object(fields: bytes) -> None:
    message = b'{"method":"a.b"%s}' % fields
    assert bytes(decode_reply(message).parameters) == bytes(decode_call(message).parameters) == b"{}"
    # A field that nobody knows is passed over.
    reply = decode_reply(b'{"parameters": {"a" :  1.0, "b":[ ]}, "later":[1]}')
    assert bytes(reply.parameters) == b'{"a" :  1.0, "b":[ ]}'


NOT_JSON = (b"", b"hello", b'{"method":"a.b"', b'{"method":"a.b"} x', b"\xff", b"NaN")
CALLS = (
    b"[]", b"{}", b'{"method":1}', b'{"method":"a.b","oneway":1}', b'{"method":"\\ud800"}',
    b'{"method":"a.b","parameters":{"a":%s}}' % (b"[" * 20_000 + b"]" * 20_000),
)  # fmt: skip
REPLIES = (
    b"[]", b'{"error":1}', b'{"continues":1}', b'{"parameters":[]}', b'{"parameters":"text"}',
    b'{"parameters":{"a":01}}', b'{"parameters":{"a":"\xff"}}', b'{"parameters":{"a":"\\ud800"}}',
    b'{"parameters":{"a":%s}}' % (b"[" * 20_000),
)  # fmt: skip


@pytest.mark.parametrize("message", NOT_JSON + CALLS, ids=lambda message: str(message[:40]))
def test_a_call_of_another_shape_is_refused(message: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_call(message)


@pytest.mark.parametrize("message", NOT_JSON + REPLIES, ids=lambda message: str(message[:40]))
def test_a_reply_of_another_shape_is_refused(message: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_reply(message)


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
