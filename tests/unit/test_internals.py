"""Internals of other packages that `serving/` relies on: a new version that changes one fails here."""

import inspect
import re
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import gevent.hub
import gevent.socket
import gevent.ssl
import pytest
from gunicorn import http
from gunicorn.app.base import Application
from gunicorn.arbiter import Arbiter
from gunicorn.http import errors, wsgi
from gunicorn.http.body import Body
from gunicorn.workers.base_async import AsyncWorker
from gunicorn.workers.ggevent import GeventWorker
from prometheus_client import values

SETUP = (Path(__file__).parents[2] / "setup.cfg").read_text()


@pytest.mark.parametrize("package", ["gunicorn", "gevent", "prometheus-client"])
def test_its_version_has_bounds_that_hold_the_installed_one(package: str) -> None:
    bounds = re.search(rf"(?m)^    {package}(?:\[\w+\])? >= (\d+)[\d.]*, < (\d+)$", SETUP)
    assert bounds is not None
    assert int(bounds[1]) <= int(version(package).split(".")[0]) < int(bounds[2])
    assert int(bounds[2]) == int(bounds[1]) + 1


def test_gunicorn_s_gevent_worker_is_an_async_worker_with_the_loop_that_ours_calls() -> None:
    assert issubclass(GeventWorker, AsyncWorker)
    assert list(inspect.signature(AsyncWorker.handle).parameters) == ["self", "listener", "client", "addr"]
    handle = inspect.getsource(AsyncWorker.handle)
    assert re.search(r"with self\.timeout_ctx\(\):\s+req = next\(parser\)", handle)
    assert "self.handle_request(listener_name, req, client, addr)" in handle
    assert handle.count("self.handle_error(req, client, addr, e)") >= 2
    assert "client.do_handshake()" in handle
    assert "listener.getsockname()" in handle
    parameters = ["self", "listener_name", "req", "sock", "addr"]
    assert list(inspect.signature(AsyncWorker.handle_request).parameters) == parameters


def test_gunicorn_s_worker_has_what_ours_overrides() -> None:
    for name in ("patch", "notify", "run", "handle_exit", "load_wsgi", "handle_error", "init_process"):
        assert callable(getattr(GeventWorker, name)), name
    assert list(inspect.signature(GeventWorker.handle_error).parameters) == [
        "self", "req", "client", "addr", "exc",
    ]  # fmt: skip
    # Gevent's patches come before the application's imports.
    assert inspect.getsource(GeventWorker.init_process).index("patch") < inspect.getsource(
        GeventWorker.init_process
    ).index("super().init_process")


def test_gunicorn_makes_its_responses_of_the_class_that_ours_replaces() -> None:
    assert "response_class = Response" in inspect.getsource(wsgi.create)
    assert "wsgi.create(" in inspect.getsource(AsyncWorker.handle_request)
    # Imported for its effect.
    from gateway_api.serving import worker  # noqa: F401

    assert inspect.getmodule(wsgi.Response) is not wsgi
    original = wsgi.Response.__mro__[1]
    assert '["%s: %s\\r\\n" % (k, v) for k, v in self.headers]' in inspect.getsource(original.send_headers)
    assert "self.headers_sent = True" in inspect.getsource(original.send_headers)
    for name in ("_omits_body", "response_length", "sent"):
        assert f"self.{name}" in inspect.getsource(original.write), name


def test_gunicorn_leaves_a_response_to_whoever_has_taken_it_over() -> None:
    handle = inspect.getsource(AsyncWorker.handle_request)
    # It makes the response first, with the socket.
    create = "resp, environ = wsgi.create(req, sock,"
    assert handle.index(create) < handle.index("self.wsgi(environ, resp.start_response)")
    assert re.search(r"if self\.is_already_handled\(respiter\):\s+return False", handle)
    response = wsgi.Response(None, SimpleNamespace(), None)
    for name in ("chunked", "sock", "headers", "status", "force_close"):
        assert hasattr(response, name)


def test_gunicorn_s_errors_have_the_order_that_statuses_rely_on() -> None:
    assert issubclass(errors.InvalidHeader, errors.ParseException)
    assert list(inspect.signature(errors.InvalidHeader).parameters)[:2] == ["hdr", "req"]
    for name in ("LimitRequestLine", "LimitRequestHeaders", "UnsupportedTransferCoding", "ExpectationFailed"):
        assert issubclass(getattr(errors, name), Exception)
    assert http.errors is errors


def test_gunicorn_imports_its_configuration_again_at_a_reload() -> None:
    assert "import_module" in inspect.getsource(Application.get_config_from_module_name)
    reload = inspect.getsource(Arbiter.reload)
    assert reload.index("self.app.reload()") < reload.index("self.cfg.on_reload(self)")
    assert reload.index("self.app.reload()") < reload.index("create_sockets")


def test_gevent_s_sockets_wrap_the_kernel_s() -> None:
    sock = gevent.socket.socket()
    try:
        assert callable(sock._sock.shutdown)
        assert sock._sock.fileno() == sock.fileno()
    finally:
        sock.close()
    assert issubclass(gevent.ssl.SSLSocket, gevent.socket.socket)
    assert "self.sslsocket_class" in inspect.getsource(gevent.ssl.SSLContext.wrap_socket)


def test_gevent_prints_the_error_of_a_greenlet_by_the_method_that_ours_replaces() -> None:
    assert list(inspect.signature(gevent.hub.Hub.print_exception).parameters)[:5] == [
        "self", "context", "t", "v", "tb",
    ]  # fmt: skip


def test_prometheus_client_makes_its_metrics_of_the_class_that_ours_replaces() -> None:
    assert inspect.isclass(values.ValueClass)
    made = inspect.getsource(values.MultiProcessValue)
    assert list(inspect.signature(values.MultiProcessValue).parameters) == ["process_identifier"]
    assert "PROMETHEUS_MULTIPROC_DIR" in made
    assert "'{}_{}.db'" in made


def test_a_body_of_gunicorn_says_that_reading_it_failed() -> None:
    class Broken:
        def read(self, size: int) -> bytes:
            raise OSError

    body = Body(Broken())
    assert not body.failed
    with pytest.raises(OSError):
        body.read(1)
    assert body.failed
