"""IPv6 networks as numbers, so that all spellings of a network are equal. The number is a bit 1, followed by
the bits of the prefix.

For example, `::/0` is 1, and `8000::/1` is 3. An address is a number of 129 bits.
"""

import socket

_BITS = 128


def looks_like_ipv6(address: str) -> bool:
    """Return True if a text is meant as an IPv6 address, False if it is meant as an IPv4 address. The text
    need not be a valid address."""
    return ":" in address


def parse_network(text: str) -> int:
    """Return the number of an IPv6 address or prefix. Raises OSError or ValueError if the text is neither."""
    written, _, length = text.partition("/")
    number, bits = int.from_bytes(socket.inet_pton(socket.AF_INET6, written)), int(length or _BITS)
    if not 0 <= bits <= _BITS:
        raise ValueError(f"must have a length of 0 to {_BITS}")
    return (1 << _BITS | number) >> _BITS - bits


def parse_address(text: str) -> int:
    """Return the number of an IPv6 address. Raises OSError or ValueError if the text is not an address."""
    return parse_network(f"{text}/{_BITS}")


def is_address(text: str) -> bool:
    try:
        parse_address(text)
    except (OSError, ValueError):
        return False
    return True


def is_inside(inner: int, outer: int) -> bool:
    """Return True if the network `inner` is a part of the network `outer`, or the same network."""
    return inner >> max(0, inner.bit_length() - outer.bit_length()) == outer


def make_sort_key(text: str) -> str:
    """Return the sort key of an IPv6 address or prefix: by address, then by length. The key is text, because
    a number of 128 bits is too large for a cursor."""
    written, _, length = text.partition("/")
    return socket.inet_pton(socket.AF_INET6, written).hex() + length.rjust(3, "0")
