"""The files that dnsmasq 2.89 to 2.91 and its script `packaging/dhcp-lease` leave on disk: the lease file,
and for each lease a record with what that file lacks."""

import re
from ipaddress import IPv4Address, IPv6Address
from operator import itemgetter

import msgspec

from gateway_core.gateways.linux.entries import EntryReader, UnreadableEntry

#: Names that are one plain word for every tool, and no option.
_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}")
_NUMBER = re.compile(r"[0-9]{1,10}")
#: dnsmasq puts the type of hardware (RFC 2131 section 2, htype) before all but Ethernet's, and before an
#: empty address. A client chooses the length, up to 16 octets, for Ethernet too.
_HARDWARE = re.compile(r"[0-9a-f]{2}-|(?:[0-9a-f]{2}-)?[0-9a-f]{2}(?::[0-9a-f]{2}){0,15}")
_ETHERNET = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")
_OCTETS = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){0,254}")
#: The identity of an IA; `T` for temporary addresses.
_IAID = re.compile(r"T?[0-9]{1,10}")
_KEY = re.compile(r"[0-9a-f]{16}")
_BOOT_ID = re.compile(r"[0-9a-z]{1,64}")
_NONE = "*"

_LEASES = EntryReader(
    "dnsmasq",
    "lease",
    "the lines in the lease file of dnsmasq",
    "a session goes on if its address can be read, and all others do",
)


class UnreadableLease(UnreadableEntry):
    """Not in the format, or not whole. The text has no part of what was read."""


class Lease(msgspec.Struct, frozen=True, gc=False):
    """An address that dnsmasq gave away."""

    address: str
    #: Epoch seconds. 0 for never, and where it cannot be read.
    expires: int
    #: As dnsmasq writes it. None for DHCPv6, and where it cannot be read.
    hardware: str | None
    #: Octets in hexadecimal, with colons: the client identifier, or the DUID. None without one, and where it
    #: cannot be read.
    client_id: str | None

    @property
    def is_v6(self) -> bool:
        return ":" in self.address

    def is_over(self, now: float) -> bool:
        # Not within the second: dnsmasq may still renew it then.
        return self.expires != 0 and int(now) > self.expires


class LeaseRecord(msgspec.Struct, frozen=True, gc=False):
    """The record that the script wrote of a lease."""

    key: str
    started_at: int
    #: As in Lease; None if dnsmasq did not know it.
    hardware: str | None
    #: None until dnsmasq tells it: after a start it only guesses.
    interface: str | None
    state: str
    #: The boot in which the script made it. None where that is not known.
    boot_id: str | None = None

    @property
    def is_live(self) -> bool:
        return self.state == "live"

    @property
    def has_expired(self) -> bool:
        return self.state == "expired"


def is_interface(text: str) -> bool:
    return _INTERFACE.fullmatch(text) is not None


def mac_address(hardware: str | None) -> str | None:
    """None if the hardware is not Ethernet with six octets."""
    return hardware if hardware is not None and _ETHERNET.fullmatch(hardware) else None


def leases_of(data: bytes) -> dict[str, Lease]:
    """Return the content of a lease file, by address. Raises UnreadableLease if it is not whole.

    Lines of five words: expiry, MAC address, address, host name, client identifier. For DHCPv6: expiry, IAID,
    address, host name, DUID. `*` stands for nothing. A line `duid` has the DUID of dnsmasq itself.

    A line of which nothing but the address can be read is a lease too: the record of the script has the rest.
    """
    if data and not data.endswith(b"\n"):
        raise UnreadableLease("the lease file is not whole")
    found: dict[str, Lease] = {}

    def keep(line: tuple[int, bytes]) -> None:
        number, text = line
        words = text.split(b" ")
        if words[0] == b"duid" and len(words) == 2:
            return
        address = _address(words)
        if address is None or address in found:
            raise UnreadableLease(f"line {number} is not a lease")
        lease = _lease(address, words)
        found[address] = lease or Lease(address, 0, None, None)
        if lease is None:
            raise UnreadableLease(f"of line {number}, only the address is in the format")

    # The lines before it may change their number.
    _LEASES.read(enumerate(data.split(b"\n")[:-1], 1), keep, name=itemgetter(1))
    return found


def record_of(data: bytes) -> LeaseRecord:
    """Return the content of a file that the script wrote; one of an earlier version has six words. Raises
    UnreadableLease."""
    try:
        words = data.decode("ascii").removesuffix("\n").split(" ")
        key, started, hardware, interface, expires, state, boot_id = [*words, "-"][: max(7, len(words))]
    except ValueError as error:
        raise UnreadableLease("a record of a lease does not have seven words") from error
    if not (
        _KEY.fullmatch(key)
        and _NUMBER.fullmatch(started)
        and (hardware == "-" or _HARDWARE.fullmatch(hardware))
        and (interface == "-" or is_interface(interface))
        and _NUMBER.fullmatch(expires)
        and state in ("live", "ended", "expired")
        and (boot_id == "-" or _BOOT_ID.fullmatch(boot_id))
    ):
        raise UnreadableLease("a record of a lease has a word that is not in its format")
    return LeaseRecord(
        key=key,
        started_at=int(started),
        hardware=None if hardware == "-" else hardware,
        interface=None if interface == "-" else interface,
        state=state,
        boot_id=None if boot_id == "-" else boot_id,
    )


def address_of(text: str, *, is_v6: bool) -> str | None:
    """Return an address in its canonical form. None if it is none."""
    try:
        return str(IPv6Address(text) if is_v6 else IPv4Address(text))
    except ValueError:
        return None


def _address(words: list[bytes]) -> str | None:
    """Return the address of a line, in its canonical form."""
    text = words[2].decode("ascii", "replace") if len(words) > 2 else ""
    # A zone is of a link.
    return None if "%" in text else address_of(text, is_v6=":" in text)


def _lease(address: str, words: list[bytes]) -> Lease | None:
    if len(words) != 5:
        return None
    try:
        # Not the host name: the subscriber chose it.
        expires, identity, client_id = (words[place].decode("ascii") for place in (0, 1, 4))
    except UnicodeDecodeError:
        return None
    is_v6 = ":" in address
    if (
        not _NUMBER.fullmatch(expires)
        or not (_IAID if is_v6 else _HARDWARE).fullmatch(identity)
        or not (client_id == _NONE or _OCTETS.fullmatch(client_id))
    ):
        return None
    return Lease(
        address=address,
        expires=int(expires),
        hardware=None if is_v6 else identity,
        client_id=None if client_id == _NONE else client_id,
    )
