"""A record of a session, and the comparison of a response of the service with its record."""

from typing import Any

import msgspec
from jsonschema import Draft202012Validator

from gateway_contract.core.sessions import SessionSummary

#: Fields that only a page of a list has.
OF_A_PAGE = {"total", "next_cursor"}


def assert_is(record: type[msgspec.Struct], value: Any, *, may_have_more: bool = False) -> None:
    """Fail for a field that is missing, unknown, of another type or out of its documented range."""
    Draft202012Validator(msgspec.json.schema(record)).validate(value)
    # Reading ignores unknown fields and fills in defaults, so either shows as a difference.
    read = msgspec.json.decode(msgspec.json.encode(msgspec.convert(value, record)))
    assert read == ({name: value[name] for name in read} if may_have_more else value)


def session(id: int, **fields: Any) -> SessionSummary:
    return SessionSummary(
        **{
            "id": id,
            "type": "PPPoE",
            "username": f"user{id}",
            "ip_address": "100.64.0.7",
            "interface": "ppp6",
            "rate_down": 1000,
            "rate_up": 2000,
            "state": "active",
            "started_at": 3,
            "mac_address": "02:00:00:00:00:07",
            "access_interface": "trunk0.7",
            "ipv6_address": None,
            "ipv6_prefix": None,
            "delegated_prefixes": (),
            "outer_vlan_id": None,
            "inner_vlan_id": 7,
            "source": "lab",
            **fields,
        }
    )
