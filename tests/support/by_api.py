"""What a gateway has, and what changes it, by requests of the API: what commands are compared with."""

from collections.abc import Mapping
from typing import Any

from tests.support.stack import Api


def sessions(api: Api, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("/subscribers", params=query)["sessions"]
    return found


def with_a_name(api: Api, number: int) -> list[dict[str, Any]]:
    """Return the first PPPoE sessions."""
    return sessions(api, type="pppoe", limit=str(number))


def rates(api: Api, session: Mapping[str, Any]) -> tuple[int, int]:
    found = api.get(f"/subscribers/{session['id']}")
    return found["rate_down_bps"], found["rate_up_bps"]


def a_vlan(api: Api) -> str:
    """Return an access interface that has sessions."""
    found: str = api.get(f"/subscribers/{with_a_name(api, 1)[0]['id']}")["access_interface"]
    return found


def disconnect(api: Api) -> str:
    """Disconnect a session, and return its username."""
    (chosen,) = with_a_name(api, 1)
    assert api.send("DELETE", f"/subscribers/{chosen['id']}").status_code == 200
    name: str = chosen["username"]
    return name


def set_value(api: Api, path: str, value: Any) -> None:
    sent = api.send("POST", "/system/config/set", json={"path": path, "value": value})
    assert sent.status_code == 200, sent.text


def commit(api: Api) -> None:
    sent = api.send("POST", "/system/config/commit")
    assert sent.status_code == 200, sent.text


def staged(api: Api) -> str:
    found: str = api.get("/system/config/compare", "admin")["diff"]
    return found
