"""Which addresses are one client's, where each is to have its share and no more."""

from ipaddress import IPv6Address, ip_address


def client_network(address: str) -> str:
    """What stands for a client: its address, or in IPv6 its network of 64 bits, within which it may have any
    (RFC 4291 section 2.5.4). What is no address, as with a Unix socket's peer, stands for itself."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(IPv6Address(int(parsed) >> 64 << 64))
    return str(parsed)
