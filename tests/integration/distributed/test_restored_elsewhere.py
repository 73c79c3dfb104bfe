"""Rows made again by a host elsewhere: the tokens of rows made here on every rung, and what ends that in one line."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="rows are asked for over gRPC")
pytest.importorskip("mlx.core", reason="rows are made with both backends")
pytest.importorskip("torch", reason="the checkpoints are written with torch")

import torch
from safetensors.torch import save_file

from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.distributed.rpc.in_thread import serving
from engine.distributed.rpc.remote import remote_restoration
from engine.distributed.rpc.server import DrafterServer
from engine.distributed.served import serve_restoration
from engine.drafters.ngram import NgramModel
from engine.errors import ModelMismatchError, SessionError, UsageError
from engine.isolation.drafter_process import DrafterProcess
from engine.loading import load_backend
from engine.restoration.restorers import full_widths
from engine.restoration.settings import RestorationSettings
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Draft
from tests.fakes import tiny_torch
from tests.fakes.fault_proxy import fault_proxy
from tests.fakes.git_servers import SshServer, free_port, missing_programs, wait_for_port
from tests.support import guarded

RANK = 8
HERE = CacheLayout.parse(f"sink2+window16+ftheta{RANK}")
THERE = replace(HERE, remote="exact")
PROMPT = tuple(5 + (7 * place * place) % (tiny_torch.VOCAB - 5) for place in range(90))


@dataclass
class Host:
    """A target of random weights with rows made here, and a server that makes them elsewhere."""

    backend: Any
    target: Any
    restorer: Any
    folder: Path
    address: str

    def elsewhere(self, address: str = "") -> Any:
        return self.backend.restored_elsewhere(remote_restoration(address or self.address), self.target)

    def opened(self, layout: CacheLayout, restorer: Any, drafter: Any) -> tuple[Any, Any]:
        sequence = self.target.open(drafter.capture, layout, restorer)
        accept, depth = self.backend.greedy(self.target), FixedDepth(4)
        return sequence, Parts(sequence, drafter.open(), accept, depth, self.backend.clock)

    def tokens(self, layout: CacheLayout, restorer: Any, count: int = 40) -> list[int]:
        sequence, parts = self.opened(layout, restorer, NgramModel(min_tokens=1))
        try:
            steps = list(speculative(parts, PROMPT, Stopping(count), 33))
            assert any(step.drafted > step.accepted for step in steps), "nothing that was shown was forgotten again"
            assert sequence.latents.rows_made > 0
            return [token for step in steps for token in step.tokens]
        finally:
            sequence.close()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("elsewhere")
    tiny_torch.write_target(root / "target", "qwen3")
    tiny_torch.write_dflash(root / "dflash")
    backend: Any = load_backend("torch", "cpu")
    target = backend.load_target(root / "target")
    drafter = backend.load_dflash(root / "dflash", target)
    named = [(info.name, info.digest) for info in (target.info, drafter.info)]
    settings = RestorationSettings("context", tiny_torch.HIDDEN, RANK, full_widths(target.family), *named)
    (root / "ftheta").mkdir()
    (root / "ftheta" / "config.json").write_text(json.dumps(settings.config()))
    generator = torch.Generator().manual_seed(7)
    made = {name: torch.randn(shape, generator=generator) for name, shape in settings.tensor_shapes.items()}
    save_file(made, root / "ftheta" / "model.safetensors")
    return root


@pytest.fixture(scope="module", params=["mlx", pytest.param("torch", marks=pytest.mark.ci)])
def host(request: pytest.FixtureRequest, folders: Path) -> Iterator[Host]:
    backend: Any = load_backend(request.param, "cpu" if request.param == "torch" else None)
    target = backend.load_target(folders / "target")
    restorer = backend.load_restoration(folders / "ftheta", target, backend.load_dflash(folders / "dflash", target))
    lender = backend.load_lender(folders / "target")
    served = serve_restoration(backend, backend.load_dflash(folders / "dflash", lender), lender, folders / "ftheta")
    with serving(DrafterServer({}, restoration=served)) as address:
        yield Host(backend, target, restorer, folders, address)


@pytest.mark.parametrize("pages", ["", "+pages4x5", "+stream"])
def test_rows_from_elsewhere_give_the_tokens_of_rows_made_here(host: Host, pages: str) -> None:
    """Drafts are rejected on the way: what was shown of them is forgotten."""
    here, there = (CacheLayout.parse(f"sink2+window16{pages}+ftheta{RANK}{where}") for where in ("", "@remote"))
    assert host.tokens(there, host.elsewhere()) == host.tokens(here, host.restorer)


def test_logits_are_those_of_rows_made_here_and_rows_of_16_bits_are_a_rounding_away(host: Host) -> None:
    def last(layout: CacheLayout, restorer: Any) -> Any:
        sequence = host.target.open((), layout, restorer)
        for _ in sequence.prefill(PROMPT[:-1], 512):
            pass
        forward = sequence.forward_block(PROMPT[-1], Draft())
        latent_bytes = sequence.latent_bytes()
        sequence.close()
        return forward, latent_bytes

    mine, _ = last(HERE, host.restorer)
    exact, latent_bytes = last(THERE, host.elsewhere())
    short, _ = last(replace(HERE, remote="bfloat16"), host.elsewhere())
    assert host.backend.apart(mine, exact) < 1e-4
    assert 1e-4 < host.backend.apart(mine, short) < 1.0
    assert latent_bytes > 0, "rows that came are held, and counted"


def test_rows_are_only_made_where_the_layout_says(host: Host) -> None:
    with pytest.raises(UsageError, match="the f_theta is loaded here; name the host"):
        host.target.open((), THERE, host.restorer)
    with pytest.raises(UsageError, match="the f_theta is served elsewhere; say"):
        host.target.open((), HERE, host.elsewhere())
    with pytest.raises(UsageError, match="has rank 8; expected the same"):
        host.target.open((), replace(THERE, rank=9), host.elsewhere())
    host.target.open((), replace(THERE, rank=0), host.elsewhere()).close()  # whatever rank there is


def test_another_target_and_another_drafter_are_refused_by_digest(host: Host, folders: Path, tmp_path: Path) -> None:
    other = host.backend.load_target(tiny_torch.write_target(tmp_path / "target", "qwen3", seed=3))
    with pytest.raises(ModelMismatchError, match="ftheta was fitted for the target 'target'"):
        host.backend.restored_elsewhere(remote_restoration(host.address), other)
    lender = host.backend.load_lender(folders / "target")
    drafter = host.backend.load_dflash(tiny_torch.write_dflash(tmp_path / "dflash", seed=3), lender)
    with pytest.raises(ModelMismatchError, match="ftheta was fitted for the drafter 'dflash'"):
        serve_restoration(host.backend, drafter, lender, folders / "ftheta")


@pytest.mark.parametrize("fault", ["cut", "half-open"])
def test_a_host_that_goes_in_the_middle_ends_the_answer_in_one_line_and_another_answer_is_whole(
    host: Host, fault: str
) -> None:
    with fault_proxy(host.address) as proxy:
        served = remote_restoration(proxy.address)
        restorer = host.backend.restored_elsewhere(served, host.target)
        sequence, parts = host.opened(THERE, restorer, NgramModel(min_tokens=1))
        steps = speculative(parts, PROMPT, Stopping(40), 33)
        begun = [next(steps) for _ in range(3)]
        proxy.tell(fault)
        object.__setattr__(served, "patience_s", 1.0)  # rows before the fault may take what a busy machine takes
        with pytest.raises(SessionError, match=f"rows made again at {proxy.address} did not come") as ended:
            begun.extend(steps)
        sequence.close()
        assert "\n" not in str(ended.value)
        proxy.tell("pass")
        if fault == "cut":
            assert host.tokens(THERE, host.elsewhere(proxy.address)) == host.tokens(HERE, host.restorer)


def test_no_host_is_found_before_anything_is_decoded() -> None:
    with pytest.raises(SessionError, match=r"nobody makes rows again at 127\.0\.0\.1:1"):
        remote_restoration("127.0.0.1:1", 0.5)


def words(folders: Path, *more: str) -> list[str]:
    return [
        "--backend", "mlx", "--target", str(folders / "target"), "--drafter", str(folders / "dflash"), *more
    ]  # fmt: skip


@pytest.mark.ci
def test_a_host_that_was_restarted_has_lost_what_it_was_shown(folders: Path) -> None:
    backend: Any = load_backend("mlx")
    target = backend.load_target(folders / "target")
    port = free_port()
    serve = words(folders, "--restoration", str(folders / "ftheta"), "--address", f"127.0.0.1:{port}")
    process = DrafterProcess(serve)
    restorer = backend.restored_elsewhere(remote_restoration(process.address), target)
    host = Host(backend, target, None, folders, process.address)
    sequence, parts = host.opened(THERE, restorer, NgramModel(min_tokens=1))
    try:
        steps = speculative(parts, PROMPT, Stopping(40), 33)
        begun = [next(steps) for _ in range(3)]
        process.close()
        process = DrafterProcess(serve)
        with pytest.raises(SessionError, match="the stream ended: "):
            begun.extend(steps)
        assert host.tokens(THERE, restorer), "the next answer begins anew"
    finally:
        sequence.close()
        process.close()


@pytest.mark.ci
def test_the_same_rows_come_through_ssh(folders: Path, tmp_path: Path) -> None:
    if any(name in missing_programs() for name in ("sshd", "ssh", "ssh-keygen")):
        pytest.skip("no sshd here")
    backend: Any = load_backend("mlx")
    target = backend.load_target(folders / "target")
    with ExitStack() as stack:
        process = DrafterProcess(words(folders, "--restoration", str(folders / "ftheta")))
        stack.callback(process.close)
        host = Host(backend, target, None, folders, process.address)
        sshd = SshServer(tmp_path, forced="cat", forwarding=True)
        stack.callback(sshd.close)
        port = free_port()
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        tunnel = guarded.start(
            [
                *(shutil.which("ssh") or "ssh", "-F", "none", "-i", tmp_path / "client_key", "-N"),
                *("-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={tmp_path / 'known_hosts'}"),
                *("-o", "ExitOnForwardFailure=yes", "-p", str(sshd.port)),
                *("-L", f"127.0.0.1:{port}:{process.address}", f"{user}@127.0.0.1"),
            ]
        )
        stack.callback(guarded.stop, tunnel)
        wait_for_port(port, tunnel)
        digests = {}
        for rung, address in (("loopback", process.address), ("ssh", f"127.0.0.1:{port}")):
            sequence = target.open((), THERE, host.elsewhere(address))
            for _ in sequence.prefill(PROMPT, 512):
                pass
            digests[rung] = b"".join(bytes(memoryview(part)) for part in sequence.latents.buffers())
            sequence.close()
        assert digests["ssh"] == digests["loopback"]
