"""What an upgrade of a dependency may break without notice, each with its reason."""

from tools.overrides import find_undocumented

_CLICK = "an option of a decorated command comes before the options of its function"
_STREAMS = "one record of TLS for a short response, and no Server header"
_URLLIB3 = "the connection to a receiver is opened with its checked address"
_WORKER = "deadlines, limits by address, and JSON for a request that cannot be parsed"

KNOWN = {
    "?.__click_params__": _CLICK,
    "?._dns_host": _URLLIB3,
    "?._sock": "a connection is ended while another greenlet waits for it",
    "?.maybe_promote_master": "systemd's watchdog hears of the arbiter's loop, which has no hook",
    "?.pool_classes_by_scheme": _URLLIB3,
    "?.sock": "a machine may have no /etc/hosts with the name of the certificate",
    "gunicorn.default_headers": _STREAMS,
    "gunicorn.handle": _WORKER,
    "gunicorn.handle_error": _WORKER,
    "gunicorn.handle_request": _WORKER,
    "gunicorn.timeout_ctx": _WORKER,
    "gunicorn.write": _STREAMS,
    "urllib3.ConnectionCls": _URLLIB3,
    "urllib3._new_conn": _URLLIB3,
}


def test_what_dependencies_do_not_document_is_used_for_a_reason_only() -> None:
    places = [f"{module}:{line} {name}" for module, line, name in find_undocumented() if name not in KNOWN]
    assert not places, "find a documented way, or give a reason"
