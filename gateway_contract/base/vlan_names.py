"""Names of VLAN devices on a trunk, with at most 15 characters (IFNAMSIZ of Linux is 16 with a NUL).

The name of a VLAN device is the name of its trunk and the VLAN tags, the outer tag first: `trunk0.50.7`. If
this name would be too long, only the end of the trunk's name is used: `np1s0.4094.4094` is a device on
`enp1s0`.
"""

import re
from collections.abc import Iterator, Sequence

MAX_INTERFACE_NAME_LENGTH = 15
#: The longest tags are `.4094.4094`.
_SHORT_NAME_LENGTH = 5


def short_name(trunk: str) -> str:
    """Return the end of a trunk's name, which is used if the name of a VLAN device would be too long. The end
    has at most five characters, and begins with a letter or a digit if possible."""
    suffix = trunk[-_SHORT_NAME_LENGTH:]
    return trunk if len(trunk) <= _SHORT_NAME_LENGTH else re.sub(r"\A[^A-Za-z0-9]+(?=.)", "", suffix)


def make_vlan_name(trunk: str, *tags: int) -> str:
    """Return the name of the VLAN device with one tag, or with an outer and an inner tag."""
    return _fit_name(trunk, "".join(f".{tag}" for tag in tags))


def make_outer_name(trunk: str, tag: int) -> str:
    """Return the name of the device that carries the VLANs with this outer tag. The name has a hyphen instead
    of a dot: a service that serves `trunk.*` must not serve this device, and `trunk.TAG` is the name of the
    VLAN with a single tag."""
    return _fit_name(trunk, f"-{tag}")


def list_name_prefixes(trunk: str, longest: Sequence[Sequence[int]]) -> Iterator[str]:
    """Yield the name prefixes of the VLAN devices of a trunk: the parts before the first tag. `longest`
    contains the largest tags of each kind of VLAN."""
    yield trunk
    if any(needs_short_name(trunk, tags) for tags in longest):
        yield short_name(trunk)


def needs_short_name(trunk: str, tags: Sequence[int]) -> bool:
    return not make_vlan_name(trunk, *tags).startswith(f"{trunk}.")


def _fit_name(trunk: str, tail: str) -> str:
    fits = len(trunk) + len(tail) <= MAX_INTERFACE_NAME_LENGTH
    return (trunk if fits else short_name(trunk)) + tail
