"""What the proxy of a run by names costs: targets at least 60 % of the direct bandwidth, at most 30 ms a connection.

The same program runs in the same sandbox, in turn by names and with the network of the host; both reach one server over
TLS in a network of the benchmark's own. Where that cannot be made (it needs root, on Linux) nothing is measured.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.quick.figures import Figure
from benchmarks.quick.interleave import Timing, ratio
from benchmarks.studies.sandbox.jobs import carry_out
from bridge.executor.trial import make_directory
from bridge.limits import MIB
from bridge.records.jobspec import Command, JobSpec, Limits, SandboxSpec
from bridge.records.network import Network
from tests.support.names_site import can_be_made, run_script

HOST, LARGE_BYTES, CONNECTIONS = "data.example.org", 64 * MIB, 20
UID = 54343
WAYS: dict[str, Network] = {"direct": "host", "by names": (HOST,)}
PROGRAM = r"""
import json, os, socket, ssl, sys, time
host, authority, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
context = ssl.create_default_context(cafile=authority)
def connect():
    proxy = os.environ.get("HTTPS_PROXY", "").removeprefix("http://")
    if not proxy:
        return context.wrap_socket(socket.create_connection((host, 443), 30), server_hostname=host)
    place, port = proxy.split(":")
    plain = socket.create_connection((place, int(port)), 30)
    plain.sendall(b"CONNECT %s:443 HTTP/1.1\r\n\r\n" % host.encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += plain.recv(1)
    assert answer.startswith(b"HTTP/1.1 200"), answer
    return context.wrap_socket(plain, server_hostname=host)
connecting = []
for _ in range(count):
    began = time.perf_counter()
    connect().close()
    connecting.append(time.perf_counter() - began)
with connect() as client:
    client.sendall(b"GET /large HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host.encode())
    client.recv(65536)
    size, buffer, began = 0, bytearray(1 << 18), time.perf_counter()
    while read := client.recv_into(buffer):
        size += read
    took = time.perf_counter() - began
print(json.dumps({"bytes": size, "download": took, "connection": sorted(connecting)[count // 2]}))
"""


def measure(repeats: int = 15) -> list[Figure]:
    """Return MiB/s and ms of both ways, their ratio, and what a connection takes longer through the proxy."""
    if not can_be_made():
        print("names_proxy: a network of its own needs root and virtual cables, on Linux", file=sys.stderr)
        return []
    done = run_script(Path(__file__), str(repeats), timeout_s=30 * repeats + 60)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    turns: dict[str, list[dict[str, float]]] = json.loads(done.stdout.splitlines()[-1])
    downloads = {way: Timing(tuple(turn["download"] for turn in each)) for way, each in turns.items()}
    connections = {way: statistics.median(turn["connection"] for turn in each) * 1e3 for way, each in turns.items()}
    figures = [
        Figure(f"64 MiB over TLS, {way}", round(LARGE_BYTES / MIB / timing.median_s, 1), "MiB/s")
        for way, timing in downloads.items()
    ]
    figures += [Figure(f"a TLS connection, {way}", round(taken, 2), "ms") for way, taken in connections.items()]
    longer = connections["by names"] - connections["direct"]
    return [
        *figures,
        Figure("seconds by names to seconds direct", round(ratio(downloads, "by names", "direct"), 2), "ratio", 1.67),
        Figure("a connection by names, beyond a direct one", round(longer, 2), "ms", 30.0),
    ]


def run_once(folder: Path, network: Network) -> dict[str, float]:
    """Return what the program measured in one run.

    Raises:
        RuntimeError: the run did not end well, or the download was not whole.
    """
    authority = str(folder / "authority" / "ca.pem")
    argv = (sys.executable, "-I", "-S", "-c", PROGRAM, HOST, authority, str(CONNECTIONS))
    limits = Limits(
        wall_s=60.0, inactivity_s=60.0, grace_s=0.5, memory_bytes=512 * MIB, processes=64, open_files=256,
        output_bytes=MIB, log_bytes=MIB,
    )  # fmt: skip
    spec = JobSpec(
        id="01k9x3" + "2" * 20, request_digest="0" * 64, preset="names-proxy", preset_digest="0" * 64,
        policy_digest="0" * 64, params={}, profile="smoke", code="host", trust_class="host",
        commands=(Command(name="download", argv=argv),), environment=(), limits=limits,
        sandbox=SandboxSpec(mode="required", uid=UID, network=network, read_only=(authority,)),
        outputs=(), gate_profile="smoke",
    )  # fmt: skip
    execution = carry_out(spec, make_directory(Path(tempfile.mkdtemp(dir=folder)) / "run"))
    if execution.program_exit != 0:
        raise RuntimeError(f"{execution.ending}: {execution.message}: {execution.log[-1000:]!r}")
    answer: dict[str, float] = json.loads(execution.log)
    if not LARGE_BYTES - MIB <= answer["bytes"] <= LARGE_BYTES:
        raise RuntimeError(f"{answer['bytes']:.0f} bytes came; expected {LARGE_BYTES}")
    return answer


def main() -> None:
    """Measure in a site of its own: argv is its folder and how many turns; prints JSON."""
    folder, repeats, order = Path(sys.argv[1]), int(sys.argv[2]), random.Random(0)
    turns: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for turn in range(1 + repeats):
        for way in order.sample(list(WAYS), len(WAYS)):
            answer = run_once(folder, WAYS[way])
            if turn > 0:
                turns[way].append(answer)
    print(json.dumps(turns))


if __name__ == "__main__":
    main()
