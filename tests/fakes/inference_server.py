"""A small server with OpenAI's completions, standard library only: `python inference_server.py MODE PORT [TOKEN_MS]`.

Its answers follow from the prompt, so that every mode says the same; a mode is how it is honest, or what it does wrong.
Without a port it is the host's own target of the same weights, which continues lines of standard input.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
import time

PINNED = ("first prompt", "second prompt")
END = "<end>"


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 64  # of five, the kernel lets some of eight connections at once wait for a second

    def process_request(self, request, client_address):
        for _ in range(200):  # a busy machine refuses a thread for a moment
            try:
                return super().process_request(request, client_address)
            except RuntimeError:
                time.sleep(0.05)
        raise RuntimeError("no thread could be started for ten seconds")


def words_of(body: str, drawn: str, count: int) -> list[str]:
    """Return the words that these weights add to a text."""
    digest = hashlib.sha256((body + drawn).encode()).hexdigest()
    return [f"{digest[7 * place % 60 :][:3]} " for place in range(count)]


def continue_lines() -> None:
    """Be the host's own target until standard input ends."""
    for line in sys.stdin:
        order = json.loads(line)
        drawn = "" if order["seed"] is None else str(order["seed"])
        words = words_of(order["text"].partition("\n")[2], drawn, order["tokens"])
        print(json.dumps({"text": "".join(words)}), flush=True)


def main(mode: str, port: int, token_s: float) -> None:  # noqa: C901 - a mode a line
    """Serve until the process is ended."""
    cached: set[str] = set()
    bodies: list[str] = []
    asked_now = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if mode == "loading":
                self.send_error(503)
                return
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self):  # noqa: C901 (a mode a line)
            body_sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if mode == "refuses":
                self.send_error(400, "no such model")
                return
            if mode == "dies":
                print("out of memory", flush=True)
                os._exit(3)
            asked_now.set()
            body = body_sent["prompt"].partition("\n")[2]
            bodies.append(body)
            if mode == "leaves" and len(bodies) > 6:
                print("out of memory in the middle", flush=True)
                os._exit(4)
            if mode == "another":
                body = bodies[max(0, len(bodies) - 2)]
            count = body_sent["max_tokens"] - (mode == "brief")
            drawn = str(body_sent.get("seed", ""))
            words = words_of(body, drawn, count)
            at_once = (mode in {"listed", "prophet"} and body in PINNED) or (
                mode in {"caching", "prophet"} and body in cached
            )
            if mode != "prophet":
                cached.add(body)
            elif drawn:  # what it draws is what it will be asked to go on from
                cached.add(body + "".join(words))
            self.send_response(200)
            stated = count * 40 if mode == "wordy" else count + 2 if mode == "generous" else count
            if mode in {"short", "padded"}:
                words[count // 2 :] = [f"{END} "] * (count - count // 2) if mode == "padded" else []
            if mode == "guessing" or (mode == "streamed" and body_sent.get("stream")):
                words[0] = "the "
            usage = {"completion_tokens": stated}
            if not body_sent.get("stream"):
                text = json.dumps({"choices": [{"text": "".join(words)}], "usage": usage}).encode()
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
                asked_now.clear()
                return
            self.end_headers()
            while mode == "endless":
                self.wfile.write(b": " + b"x" * 65536 + b"\n")
            broken = mode in {"fails", "breaks"}
            for word in words[:1] if broken else words:
                time.sleep(
                    token_s / 10 if at_once else token_s
                )  # prepared, and yet well above what a machine scatters by
                self.wfile.write(b"data: " + json.dumps({"choices": [{"text": word}]}).encode() + b"\n\n")
            if mode == "fails":
                self.wfile.write(b'data: {"error": {"message": "out of memory"}}\n\n')
            if broken:
                return
            self.wfile.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
            self.wfile.write(b"data: [DONE]\n\n")
            asked_now.clear()

        def log_message(self, *_):
            pass

    def burn():
        while True:
            if asked_now.is_set():
                time.sleep(0.005)
            else:
                sum(range(20_000))

    if mode == "burning":
        threading.Thread(target=burn, daemon=True).start()
    if mode == "hidden":  # processes that are nobody's children any more
        spin = "import os\nif os.fork(): os._exit(0)\nos.setsid()\nwhile True: pass"
        for _ in range(4):  # a busy machine gives each of them little
            subprocess.run([sys.executable, "-I", "-S", "-c", spin], check=True)
    if mode == "loud":
        for _ in range(1000):
            print("x" * 1_000_000)
    print("listening", flush=True)
    Server(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        continue_lines()
    else:
        main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 1000 if len(sys.argv) > 3 else 0.002)
