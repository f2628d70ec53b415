"""Lists as a caller gets them in one reply."""

from typing import Any

from gateway_contract.contract import Page
from gateway_core.records.paging import Reply, Rows, make_list_reply


def fields_of(reply: Reply) -> dict[str, Any]:
    """The fields of the reply, in one if it is a whole list."""
    return reply if isinstance(reply, dict) else reply.whole()


def list_of(field: str, rows: Rows, page: Page | None, order: str) -> dict[str, Any]:
    """The fields of the reply with these rows."""
    return fields_of(make_list_reply(field, rows, page, order))
