"""What an upgrade of a dependency may break without notice, each with its reason."""

from tools.overrides import undocumented

_CLICK = "an option of a decorated command comes before the options of its function"
_STREAMS = "one record of TLS for a short response, and no Server header"
_WORKER = "deadlines, limits by address, and JSON for a request that cannot be parsed"

KNOWN = {
    "?.__click_params__": _CLICK,
    "?._sock": "a connection is ended while another greenlet waits for it",
    "?.maybe_promote_master": "systemd's watchdog hears of the arbiter's loop, which has no hook",
    "?.sock": "a machine may have no /etc/hosts with the name of the certificate",
    "gunicorn.default_headers": _STREAMS,
    "gunicorn.handle": _WORKER,
    "gunicorn.handle_error": _WORKER,
    "gunicorn.handle_request": _WORKER,
    "gunicorn.timeout_ctx": _WORKER,
    "gunicorn.write": _STREAMS,
}


def test_what_dependencies_do_not_document_is_used_for_a_reason_only() -> None:
    places = [f"{module}:{line} {name}" for module, line, name in undocumented() if name not in KNOWN]
    assert not places, "find a documented way, or give a reason"
