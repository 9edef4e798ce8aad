"""A rendezvous store that hands Horovod's requests on and treats ours badly. store_proxy.py HOW HOST PORT PARENT; see on_rank.py."""

import http.client
import http.server
import os
import sys
import threading
import time

how, host, port, parent = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
silent = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    def _pass_on(self, method):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        ours = "stitchfleet-" in self.path and "summaries" not in self.path
        if ours and how == "refuses":
            self._answer(503, b"")
            return
        if ours and how == "late":
            time.sleep(0.3)
        if ours and silent.is_set():
            time.sleep(3600)
        connection = http.client.HTTPConnection(host, port, timeout=60)
        connection.request(method, self.path, body if method == "PUT" else None)
        answer = connection.getresponse()
        self._answer(answer.status, answer.read())
        if ours and how == "silent" and method == "PUT" and "-0-seen-" in self.path:
            silent.set()  # it has promised to wait for rank 0's word, and will not read it

    def do_GET(self):
        self._pass_on("GET")

    def do_PUT(self):
        self._pass_on("PUT")

    def do_DELETE(self):
        self._pass_on("DELETE")

    def _answer(self, status, body):
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            pass

    def log_message(self, format, *arguments):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
while os.getppid() == parent:
    time.sleep(0.2)
