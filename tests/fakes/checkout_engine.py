"""A folder that holds an `engine` package without an array library: what a checkout offers to a comparison of commits.

Decodes a fixed sequence, a step at a time, each as slow as the checkout says; the names are those the worker asks for.
"""

from __future__ import annotations

from pathlib import Path

_FILES = {
    "__init__.py": "",
    "types.py": """
from dataclasses import dataclass, field
class CacheLayout:
    NATIVE = "native"
@dataclass
class TargetInfo:
    name: str = "toy"
    digest: str = "ab" * 32
    format: str = "toy"
    parameters: int = 1000
    vocab_size: int = 100
    dtype: str = "float32"
    stop_ids: tuple = (1,)
@dataclass
class DrafterInfo:
    name: str = "toy-drafter"
    digest: str = "cd" * 32
    format: str = "toy"
    parameters: int = 10
    block_size: int = 4
    settings: dict = field(default_factory=dict)
""",
    "loading.py": """
from engine.types import DrafterInfo, TargetInfo
class Backend:
    name, device = "mlx", "cpu"
    def versions(self): return {"toy": "1"}
    def blas(self): return None
    def allocator_active_bytes(self): return 4096
class Model:
    def __init__(self, info): self.info = info
class Engine:
    backend, target, drafter = Backend(), Model(TargetInfo()), Model(DrafterInfo())
def load_backend(name): return Backend()
def open_engine(backend, target, drafter): return Engine()
""",
    "decoding/__init__.py": "",
    "decoding/depth.py": "class FixedDepth:\n    def __init__(self, tokens): self.tokens = tokens\n",
    "stopping.py": """
class Stopping:
    def __init__(self, budget_tokens, stop_ids): self.budget_tokens = budget_tokens
""",
    "measurement/__init__.py": "",
    "measurement/launch.py": "def top2_margin(engine, ids, settings): return 0.25\n",
    "measurement/arms.py": """
import time
from dataclasses import dataclass
from engine.types import CacheLayout
STEP_S, TOKEN = {step_s!r}, {token!r}
@dataclass
class ArmSettings:
    layout: object
    depth: object
    chunk_tokens: int
@dataclass
class Step:
    tokens: tuple
    drafted: int
    accepted: int
    committed: int
    position: int
    target_forwards: int
    drafter_forwards: int
    host_syncs: int
    prefill: bool = False
    stop: object = None
    guard: object = None
    skipped: object = None
class Running:
    def __init__(self, steps): self.steps = steps
    def kv_bytes(self): return 640
    def drafter_bytes(self): return 64
    {more}
def code_path(engine, arm): return "engine.decoding.speculative:speculative"
def start(engine, arm, settings, ids, stopping):
    {trouble}
    def steps():
        yield Step((TOKEN,), 0, 0, 1, len(ids), 1, 0, 1, prefill=True)
        left = stopping.budget_tokens - 1
        while left:
            time.sleep(STEP_S * (1 + len(ids) / 100))
            left -= 1
            yield Step((TOKEN,), 1, 0, 1, 0, 1, 1, 1, stop=None if left else "budget")
    return Running(steps())
""",
}


def write_checkout(folder: Path, *, step_s: float = 0.0, token: int = 7, trouble: str = "pass", more: str = "") -> Path:
    """Write the package below a folder and return the folder.

    Args:
        folder: made when it is not there.
        step_s: seconds of a decode step of a prompt without tokens.
        token: what it always says.
        trouble: a statement run before every generation.
        more: what a running generation offers besides, a method on one line.
    """
    for name, text in _FILES.items():
        path = folder / "engine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        body = text.format(step_s=step_s, token=token, trouble=trouble, more=more) if name.endswith("arms.py") else text
        path.write_text(body, "utf-8")
    return folder
