"""Serve another server's answers a little later: `slower.py PORT SHARE PROGRAM ...`.

PROGRAM gets `--openai 127.0.0.1:OTHER` behind its words. Each piece of an answer waits for that share of the time that
it took to come: a copy that is deliberately slower, to see that a measurement finds it.
"""

import http.client
import http.server
import socket
import subprocess
import sys
import time

PORT, SHARE, PROGRAM = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 64


class Later(http.server.BaseHTTPRequestHandler):
    def forward(self):
        began = time.monotonic()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        connection = http.client.HTTPConnection("127.0.0.1", other, timeout=300)
        headers = {"Content-Type": self.headers["Content-Type"]} if body else {}
        try:
            connection.request(self.command, self.path, body or None, headers)
            response = connection.getresponse()
        except OSError:
            self.send_error(503, "not ready")
            return
        self.send_response(response.status)
        self.end_headers()
        while piece := response.read1(65536):
            time.sleep(SHARE * (time.monotonic() - began))
            self.wfile.write(piece)
            began = time.monotonic()

    do_GET = do_POST = forward  # noqa: N815

    def log_message(self, *_):
        pass


with socket.create_server(("127.0.0.1", 0)) as free:
    other = free.getsockname()[1]
subprocess.Popen([*PROGRAM, "--openai", f"127.0.0.1:{other}"])
Server(("127.0.0.1", PORT), Later).serve_forever()
