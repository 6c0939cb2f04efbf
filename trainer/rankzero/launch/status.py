"""The launcher's HTTP pages. Read-only, and without the workers' output.

/healthz: its event loop turns. /readyz: and this pod is part of a group that trains or recovers. /status, /metrics:
see ``snapshot``.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rankzero.launch import metrics

STALE_AFTER = 60.0
"""Seconds after which an event loop that no longer ticks counts as hung."""
REQUEST_WITHIN = 5.0
"""Seconds for a client to say what it wants, and to take each part of the answer."""
MOST_REQUESTS = 32
"""Connections at a time: probes and a Prometheus or two, all answered within a few milliseconds."""
BACKLOG = 128
"""Connections that wait to be accepted."""


class StatusServer:
    """Serves ``snapshot()`` and ``ready()`` from a thread; ``tick`` says that the event loop is alive.

    It ends with the process: waiting for the thread would keep a stopped pod's place for half a second longer.
    """

    def __init__(self, port: int, snapshot: Callable[[], dict[str, Any]], ready: Callable[[], bool]) -> None:
        self._snapshot = snapshot
        self._ready = ready
        self._ticked = time.monotonic()
        self._server = _server(port, self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, name="status", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Serve in the background."""
        self._thread.start()

    def tick(self) -> None:
        """Called by the event loop at least every few seconds."""
        self._ticked = time.monotonic()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            server_version = "rankzero"
            timeout = REQUEST_WITHIN

            def do_GET(self) -> None:
                alive = time.monotonic() - owner._ticked < STALE_AFTER
                if self.path == "/status":
                    self._answer(HTTPStatus.OK, owner._snapshot())
                elif self.path == "/metrics":
                    self._send(HTTPStatus.OK, metrics.render(owner._snapshot()), metrics.CONTENT_TYPE)
                elif self.path == "/healthz":
                    self._answer(_yes_or_no(alive), {"alive": alive})
                elif self.path == "/readyz":
                    ready = owner._ready()
                    self._answer(_yes_or_no(alive and ready), {"alive": alive, "ready": ready})
                else:
                    self._answer(HTTPStatus.NOT_FOUND, {"paths": ["/healthz", "/readyz", "/status", "/metrics"]})

            def _answer(self, status: HTTPStatus, document: dict[str, Any]) -> None:
                self._send(status, json.dumps(document).encode() + b"\n", "application/json")

            def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Probes every few seconds are no news."""

        return Handler


def _yes_or_no(good: bool) -> HTTPStatus:
    return HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE


def _server(port: int, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    """A server on all addresses, IPv6 too where this machine has it. Raises OSError where the port is taken."""
    if not socket.has_dualstack_ipv6():
        return _Server(("", port), handler)
    return _DualStackServer(("::", port), handler)


class _Server(ThreadingHTTPServer):
    """One thread a request, and never more than :data:`MOST_REQUESTS`, whoever connects."""

    request_queue_size = BACKLOG

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._changing = threading.Lock()
        self._open: dict[socket.socket, None] = {}
        """In the order of their arrival."""
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Called for each connection, from one thread."""
        with self._changing:
            if len(self._open) >= MOST_REQUESTS:  # a probe asks at once: who has been here longest is none
                oldest = next(iter(self._open))
                del self._open[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # which ends its thread
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Called when a connection has been served."""
        with self._changing:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news; anything else is a bug of ours and leaves its traceback."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _DualStackServer(_Server):
    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()
