"""A store as Horovod's (horovod/runner/http/http_server.py), in the tests' process; it can be made late, or refuse."""

from __future__ import annotations

import http.server
import threading
import time
from typing import Any


class Rendezvous:
    """`with Rendezvous() as server`. delay_s: before each answer; status: instead of any answer, if it is not 0."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.delay_s = 0.0
        self.status = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                value = outer.values.get(self.path)
                self._answer(200 if value is not None else 404, value or b"")

            def do_PUT(self) -> None:
                value = self.rfile.read(int(self.headers["Content-Length"]))
                if not outer.status:
                    outer.values[self.path] = value
                self._answer(200, b"")

            def _answer(self, status: int, body: bytes) -> None:
                time.sleep(outer.delay_s)
                try:
                    self.send_response(outer.status or status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass  # the client has given up

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._server.server_address[1]

    def __enter__(self) -> Rendezvous:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
