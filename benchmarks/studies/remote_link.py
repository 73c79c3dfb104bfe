"""What the link itself costs: a small ask, many rows beside raw TCP, and health beside a long draft, each in one run.

The floor of a small ask is a message that comes back over a stream of the same library between two such processes.

``python -m benchmarks.studies.remote_link KIND`` is the server's side, a process of its own: ``busy`` drafts for 80 ms,
``sink`` takes bytes over plain TCP, ``echo`` sends every message back.
"""

from __future__ import annotations

import asyncio
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row, Study
from engine.distributed.rpc.client import DrafterChannel
from engine.distributed.rpc.methods import DFLASH, NGRAM
from engine.distributed.rpc.remote import remote_model
from engine.distributed.rpc.server import DrafterServer
from engine.distributed.served import serve_ngram
from engine.distributed.session import Served
from engine.drafters.ngram import NgramDrafter, NgramModel
from engine.isolation.drafter_process import DrafterProcess
from engine.loading import load_backend, open_engine, own_drafter, resolve_model

ASKS, LOADS, PROBES, DRAFT_S, PROBE_EVERY_S = 2000, 40, 1000, 0.08, 0.01
ASK, ECHO, ECHO_PATH = "ask, above its draft", "a message back over a bare stream", "/floor/Echo"
SMALL, ROWS, HEALTH = "small ask", "many rows", "health"


def cases() -> Sequence[str]:
    """Return what is measured."""
    return (SMALL, ROWS, HEALTH)


def run(case: str) -> list[Row]:
    """Measure one of them."""
    return {SMALL: _small, ROWS: _rows, HEALTH: _health}[case]()


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median and the 99th percentile."""
    ordered = sorted(seconds)
    return {"p50_s": ordered[len(ordered) // 2], "p99_s": ordered[int(0.99 * len(ordered))], "n": len(ordered)}


@contextmanager
def _process(kind: str) -> Iterator[str]:
    """Yield the address of a server of this module in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.studies.remote_link", kind]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def _engine() -> Any:

    target = resolve_model("kakeya-tiny-gemma4")
    return open_engine(load_backend("mlx"), str(target), own_drafter(target))


def _model(address: str, service: Any, engine: Any) -> Any:

    channel = DrafterChannel(address, service)
    return remote_model(channel, engine.backend, engine.target, engine.folder, patience_s=600.0)


def _small() -> list[Row]:
    """Ask an open stream for three tokens in turn with the floor; what the draft itself took is taken off."""
    process, echoed = DrafterProcess(["--drafter", "ngram"]), []
    try:
        drafter = _model(process.address, NGRAM, _engine()).open()
        drafter.observe(0, (5, 6, 7, 8) * 8, None)
        with _process("echo") as address, _echo(address) as echo:
            for _ in range(ASKS + 50):
                drafter.ask(5, 32, 3).take()
                began_s = time.perf_counter()
                echo()
                echoed.append(time.perf_counter() - began_s)
        traffic = drafter.traffic
        above = [came - drafting for came, drafting in zip(traffic.seconds, traffic.drafting_s, strict=True)][50:]
        drafter.close()
    finally:
        process.close()
    return [{"what": ASK} | quantiles(above), {"what": ECHO} | quantiles(echoed[50:])]


@contextmanager
def _echo(address: str) -> Iterator[Callable[[], None]]:
    """Yield what sends a message of 32 bytes and waits until it is back."""
    waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    with grpc.insecure_channel(address) as channel:
        coming = channel.stream_stream(ECHO_PATH)(iter(waiting.get, None))

        def echo() -> None:
            waiting.put(bytes(32))
            next(coming)

        yield echo
        waiting.put(None)


def _rows() -> list[Row]:
    """Show a new session as many rows as its context has room for, and send as many bytes over plain TCP, in turn."""
    engine, process, grpc_s, tcp_s = _engine(), DrafterProcess([]), [], []
    model = _model(process.address, DFLASH, engine)
    count = model.offer.context_tokens
    size = count * model.offer.width * 4
    numbers = np.random.default_rng(0).standard_normal((count, model.offer.width), np.float32)
    features = engine.backend.unpacked(bytearray(numbers.tobytes()), numbers.shape, "float32")
    try:
        with _process("sink") as sink, socket.create_connection(sink.split(":")) as plain:
            for _ in range(LOADS + 2):
                drafter = model.open()
                drafter.observe(0, (5,) * count, features)
                drafter.ask(5, count, 3).take()
                grpc_s.append(drafter.traffic.seconds[0] - drafter.traffic.drafting_s[0])
                drafter.close()
                began_s = time.perf_counter()
                plain.sendall(size.to_bytes(8, "little") + bytes(size))
                plain.recv(1)
                tcp_s.append(time.perf_counter() - began_s)
    finally:
        process.close()
    return [
        {"what": "rows over the stream", "bytes": size} | quantiles(grpc_s[2:]),
        {"what": "as many bytes over TCP", "bytes": size} | quantiles(tcp_s[2:]),
    ]


def _health() -> list[Row]:
    """Probe an idle server, then the same one while it drafts without a pause."""
    with _process("busy") as address, grpc.insecure_channel(address) as channel:
        stub, found, stop = health_pb2_grpc.HealthStub(channel), [], threading.Event()
        drafter = _model(address, NGRAM, _engine()).open()
        drafter.observe(0, (5, 6), None)

        def probe() -> list[float]:
            took = []
            for _ in range(PROBES):
                began_s = time.perf_counter()
                stub.Check(health_pb2.HealthCheckRequest(), timeout=60.0)
                took.append(time.perf_counter() - began_s)
                time.sleep(PROBE_EVERY_S)
            return took

        def draft() -> None:
            while not stop.is_set():
                drafter.ask(7, 2, 3).take()

        found.append({"what": "idle"} | quantiles(probe()))
        drafting = threading.Thread(target=draft)
        drafting.start()
        found.append({"what": "beside drafts"} | quantiles(probe()))
        stop.set()
        drafting.join()
        found.append({"what": "draft"} | quantiles(drafter.traffic.drafting_s))
        drafter.close()
    return found


def _serve_busy() -> None:
    """Serve prompt lookup that computes for ``DRAFT_S`` before it answers."""

    class Busy(NgramDrafter):
        def ask(self, bonus: int, position: int, count: int) -> Any:
            until_s, matrix = time.perf_counter() + DRAFT_S, np.ones((600, 600), np.float32)
            while time.perf_counter() < until_s:
                matrix @ matrix
            return super().ask(bonus, position, count)

    served = serve_ngram(NgramModel())
    server = DrafterServer({NGRAM: Served(served.offer, lambda _: Busy(NgramModel()))})

    async def serve() -> None:
        print(await server.start("127.0.0.1:0"), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await server.stop()

    asyncio.run(serve())


def _serve_echo() -> None:
    """Send every message of a stream back."""

    async def stream(requests: Any, context: Any) -> None:
        async for message in requests:
            await context.write(message)

    async def serve() -> None:
        server = grpc.aio.server()
        _, service, method = ECHO_PATH.split("/")
        handlers = {method: grpc.stream_stream_rpc_method_handler(stream)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        print(f"127.0.0.1:{port}", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await server.stop(None)

    asyncio.run(serve())


def _serve_sink() -> None:
    """Take a size and as many bytes, answer one, and begin again."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(f"127.0.0.1:{server.getsockname()[1]}", flush=True)
        connection, _ = server.accept()
        with connection:
            buffer = bytearray(1 << 24)
            while head := connection.recv(8, socket.MSG_WAITALL):
                view = memoryview(buffer)[: int.from_bytes(head, "little")]
                while view:
                    view = view[connection.recv_into(view) :]
                connection.sendall(b".")


STUDY = Study("remote-link", "What does the link cost by itself, and does a server answer while it drafts?", cases, run)

if __name__ == "__main__":
    {"busy": _serve_busy, "sink": _serve_sink, "echo": _serve_echo}[sys.argv[1]]()
