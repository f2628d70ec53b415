"""How metrics, the audit log, the OpenAPI document and the list of routes spell a route."""

import re
from functools import cache


@cache
def template(rule: str) -> str:
    """werkzeug's `/subscribers/<session:id>` as OpenAPI's `/subscribers/{id}` (OpenAPI 3.1 section 4.8.8)."""
    return re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule)
