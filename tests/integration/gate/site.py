"""One runner that serves one bus in a folder; each lie is a request of its own, what ended is what a requester fetches.

Real processes, a real sample pipe, a real result tree.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridge.bus import open_bus
from bridge.bus.open.create import new_record
from bridge.bus.refbus import RefBus
from bridge.bus.views import RequestRef
from bridge.records.claim import Claim
from bridge.system.clock import SystemClock
from bridge.trust.verifier import verify_tree
from tests.fakes.asking import make_request, push
from tests.integration.gate.lies import EARLIER, LIES
from tests.support import guarded
from tests.support.claims import Claims
from tests.support.interpreter import write_interpreter
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
CLOCK = SystemClock()
ENDED_MOST_S = 900.0
# Asked about itself it is the real interpreter; asked to run the engine it runs the stand-in.
WORK = 'PYTHONPATH={root} exec {python} -m tests.integration.gate.workload "$@"\n'
POLICY = """schema = 1
name = "mini"
interpreter = "{folder}/python"
rate_per_hour = 0
model_roots = ["{folder}/models"]
[presets]
folder = "{folder}/presets"
[sandbox]
mode = "off"
"""
PRESET = """schema = 1
name = "{name}"
status = "ready"
description = "a stand-in for the engine that may lie"
gate_profile = "default"
[models]
target = "toy"
drafter = "toy-drafter"
[params.lie]
type = "choice"
choices = [{choices}]
help = "how to lie"
{commands}
[[outputs]]
path = "report.json"
kind = "{kind}"
[limits]
wall_s = 900.0
[sandbox]
mode = "off"
"""
MEASURE = """[[commands]]
name = "measure"
argv = ["${{engine}}", "{{lie}}", "{name}"]"""
ASIDE = """[[commands]]
name = "first"
argv = ["${{engine}}", "{{lie}}", "nothing"]
[[commands]]
name = "measure"
argv = ["/usr/bin/env", "{folder}/python", "{{lie}}", "decode"]"""
"""The engine does nothing, then a program that is not the engine writes the report."""
ENGINE, FOREIGN = '"${{engine}}"', '"/usr/bin/env", "{folder}/python"'
RULES = {
    "smoke": "least = 3, most = 3",
    "claim": "least = 10, most = 20, blocks = 5, allowed_s = 780.0",
}


def in_turns(
    reference: str | None = ENGINE, assemble: str = ENGINE, recompute: str | None = ENGINE, solo_s: float = 0.3
) -> str:
    """Return the commands of a series in turns: which programs they are, None for none."""
    lines = ["[[commands]]", 'name = "launch"', f'argv = [{ENGINE}, "{{{{lie}}}}", "launch"]']
    lines += [] if reference is None else [f'reference = [{reference}, "{{{{lie}}}}", "reference"]']
    for profile, rule in RULES.items():
        lines += [f"[commands.launches.{profile}]", 'arms = ["autoregressive", "speculative"]', f"solo_s = {solo_s}"]
        lines += ["prefill = true", f"rule = {{{{ {rule} }}}}"]
    lines += ["[[commands]]", 'name = "assemble"', f'argv = [{assemble}, "{{{{lie}}}}", "assemble"]']
    if recompute is not None:
        lines += ["[[commands]]", 'name = "recompute"', f'argv = [{recompute}, "{{{{lie}}}}", "recompute"]']
        lines += ["confirms = true", "[[outputs]]", 'path = "recompute.json"', 'kind = "recompute"']
    return "\n".join(lines)


PRESETS = {
    "decode": ("code_throughput", MEASURE),
    "memory": ("bounded_kv", MEASURE),
    "aside": ("code_throughput", ASIDE),
    "turns": ("code_throughput", in_turns()),
    "needles": ("needle_recall", in_turns()),
    "without-reference": ("code_throughput", in_turns(reference=None)),
    "without-stretches": ("code_throughput", in_turns(solo_s=0.0)),
    "without-recompute": ("code_throughput", in_turns(recompute=None)),
    "foreign-reference": ("code_throughput", in_turns(reference=FOREIGN)),
    "foreign-assemble": ("code_throughput", in_turns(assemble=FOREIGN)),
}
"""The kind of report of each preset, and its commands."""


MODEL = {"num_hidden_layers": 1, "layer_types": ["full_attention"], "vocab_size": 2048, "dtype": "float32"}
"""One layer that keeps 128 values, 512 bytes, of a position."""
TENSORS = {
    "model.embed_tokens.weight": [122, 4],
    "model.layers.0.self_attn.k_proj.weight": [64, 4],
    "model.layers.0.self_attn.v_proj.weight": [64, 4],
}


def weights(name: str) -> bytes:
    """Return a safetensors file of a thousand values."""
    header = {tensor: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for tensor, shape in TENSORS.items()}
    data = json.dumps(header).encode()
    return len(data).to_bytes(8, "little") + data + name.encode() * 64


@dataclass
class Ended:
    """A finished run as a requester finds it."""

    claim: Claim
    files: dict[str, bytes]

    @property
    def verdict(self) -> Any:
        return json.loads(self.files["verdict.json"])

    def codes(self, severity: str | None = None) -> set[str]:
        findings = self.verdict["findings"]
        return {finding["code"] for finding in findings if severity is None or finding["severity"] == severity}


@dataclass
class Site:
    """A bus, a policy, and one runner that takes what is asked."""

    folder: Path
    requests: dict[str, RequestRef] = field(default_factory=dict)
    runner: subprocess.Popen[bytes] | None = None

    def build(self) -> None:
        self.folder.chmod(0o700)
        subprocess.run(["git", "init", "-q", "--bare", self.folder / "bus.git"], check=True)
        for name in ("toy", "toy-drafter"):
            (self.folder / "models" / name).mkdir(parents=True)
            (self.folder / "models" / name / "config.json").write_text(json.dumps(MODEL | {"name": name}))
            (self.folder / "models" / name / "model.safetensors").write_bytes(weights(name))
        left = self.folder / "models" / "left-behind"
        left.touch()
        left.chmod(0o666)  # a root runner's runs are another user
        (self.folder / "presets").mkdir(mode=0o700)
        choices = ", ".join(f'"{name}"' for name in LIES)
        for name, (kind, template) in PRESETS.items():
            commands = template.format(name=name, folder=self.folder)
            text = PRESET.format(name=name, kind=kind, choices=choices, commands=commands)
            self._write(f"presets/{name}.toml", text)
        self._write("policy.toml", POLICY.format(folder=self.folder))
        write_interpreter(self.folder / "python", WORK.format(python=sys.executable, root=ROOT))
        self.bus().create(new_record(CLOCK, wake="poll", local=True))
        argv = ["serve", "--policy", self.folder / "policy.toml", "--state", self.folder / "state", "--bus", self.route]
        with (self.folder / "log").open("wb") as log:
            self.runner = guarded.start([sys.executable, "-m", "bridge.cli.host.main", *argv], cwd=ROOT, stderr=log)

    def _write(self, name: str, text: str, mode: int = 0o600) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(mode)

    @property
    def route(self) -> str:
        return f"file://{self.folder}/bus.git"

    def bus(self) -> RefBus:
        return open_bus(self.route, repository=None, state=self.folder / "requester", clock=CLOCK)

    def keep_an_earlier_report(self) -> None:
        """Leave the report of an honest run beside the models, where a lie finds it."""
        report = self.ended("honest").files["reports/report.json"]
        (self.folder / "models" / EARLIER).write_bytes(report)
        os.utime(self.folder / "models" / EARLIER, (CLOCK.now().timestamp() - 60,) * 2)

    def ask(self, name: str, **fields: Any) -> None:
        bus = self.bus()
        request = make_request(bus.identity().bus_id, LIES[name].preset, params={"lie": name}, **fields)
        self.requests[name] = push(bus, request)

    def ended(self, name: str) -> Ended:
        """Wait for the end of a run; the bound only ends a broken test."""
        if name not in self.requests:
            self.ask(name)
        run_id, claims = self.requests[name].id, Claims(self.folder / "bus.git", self.bus)
        claim = until(lambda: claims.end(run_id), patience_s=ENDED_MOST_S, why=(self.folder / "log").read_text)
        assert claim is not None
        assert claim.result_oid is not None
        files = dict(self.bus().read_result(claim.result_oid).files)
        assert verify_tree(files, run_id=run_id) == []
        return Ended(claim, files)


@contextmanager
def serving(folder: Path) -> Iterator[Site]:
    """Serve a bus in this folder until the end."""
    made = Site(folder)
    made.build()
    try:
        yield made
    finally:
        if made.runner is not None:
            guarded.stop(made.runner)
