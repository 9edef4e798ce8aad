"""A rendezvous store as horovodrun's, for ranks whose launcher has none: a program of its own, which rank 0 starts (meeting.py).

    python -I -S store_server.py SCOPE      prints its port; ends when the process that has started it ends

GET /SCOPE/KEY answers 200 with the value, or 404; PUT /SCOPE/KEY stores the body (store.py). SCOPE holds a random secret: requests
with another one are answered 404 and store nothing. Values and their number are bounded, so that whoever knows the secret cannot fill
the memory. It is a process of its own, so that requests of many ranks do not hold up the training's interpreter; at the job's own
priority, since steps may wait for its answer.
Standard library only, and nothing of stitchfleet: a child would otherwise load the plugin.
"""

from __future__ import annotations

import http.server
import os
import socket
import sys
import threading

MAX_VALUE_BYTES = 16 << 20
MAX_CELLS = 200_000
MAX_BYTES = 256 << 20
_IDLE_SECONDS = 10.0
"""A connection that sends nothing for so long is closed."""


class Cells:
    """The values of one scope, by path ("/SCOPE/KEY"). Any thread may call its methods."""

    def __init__(self, scope: str) -> None:
        self._prefix = f"/{scope}/"
        self._values: dict[str, bytes] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, path: str) -> bytes | None:
        """The value at a path, or None."""
        with self._lock:
            return self._values.get(path)

    def put(self, path: str, value: bytes) -> int:
        """Stores a value and returns an HTTP status: 200, 404 for another scope, 507 if there is no room."""
        if not path.startswith(self._prefix):
            return 404
        with self._lock:
            before = self._values.get(path)
            total = self._bytes + len(value) - (len(before) if before is not None else -len(path))
            if total > MAX_BYTES or (before is None and len(self._values) >= MAX_CELLS):
                return 507
            self._values[path], self._bytes = value, total
        return 200


class Server(http.server.ThreadingHTTPServer):
    """Listens on a free port of all addresses, IPv6 and IPv4 if the machine has IPv6."""

    daemon_threads = True
    request_queue_size = 256
    timeout = 1.0

    def __init__(self, scope: str) -> None:
        self.cells = Cells(scope)
        try:
            self.address_family = socket.AF_INET6
            super().__init__(("::", 0), _Handler, bind_and_activate=False)
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            self.server_bind()
        except OSError:
            self.address_family = socket.AF_INET
            super().__init__(("0.0.0.0", 0), _Handler, bind_and_activate=False)
            self.server_bind()
        self.server_activate()

    def server_bind(self) -> None:
        """Binds the socket without HTTPServer's look-up of the machine's name, which may take seconds."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "", self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """Prints nothing: a client that has gone is no error."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        value = self.server.cells.get(self.path)
        self._answer(404 if value is None else 200, value or b"")

    def do_PUT(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or int(length) > MAX_VALUE_BYTES:
            self._answer(413, b"")
            return
        value = self.rfile.read(int(length))
        # A body that breaks off is not stored: it would be read as another value.
        self._answer(self.server.cells.put(self.path, value) if len(value) == int(length) else 400, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing is logged: standard error is the job's."""


def main() -> None:
    """Serves as long as the process that has started this one lives."""
    parent = os.getppid()
    with Server(sys.argv[1]) as server:
        print(server.server_port, flush=True)
        while os.getppid() == parent:
            server.handle_request()


if __name__ == "__main__":
    main()
