"""A workload folder on disk: a small training script, and what its owner writes about it."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path


def _bare_python() -> str:
    """Return an interpreter without packages: an environment of three files, made once for this process."""
    top = Path(tempfile.mkdtemp(prefix="kakeya-bare-"))
    atexit.register(shutil.rmtree, top, ignore_errors=True)
    top.chmod(0o755)
    base = Path(os.path.realpath(sys.executable))
    (top / "bin").mkdir()
    for name in ("python", "python3"):
        (top / "bin" / name).symlink_to(base)
    (top / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages").mkdir(parents=True)
    (top / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    return str(top / "bin" / "python3")


INTERPRETER = _bare_python()
TRAIN = """import argparse, json, os, random
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=20)
options = parser.parse_args()
random.seed(int(os.environ["KAKEYA_SEED"]))
weight = random.gauss(0.0, 1.0)
rows = [(x / 10.0, 0.3 * x + random.gauss(0.0, 0.1)) for x in range(20)]
for _ in range(options.steps):
    weight -= options.lr * sum(2.0 * (weight * x - y) * x for x, y in rows) / len(rows)
loss = sum((weight * x - y) ** 2 for x, y in rows) / len(rows)
Path(os.environ["KAKEYA_OUT"], "weights.json").write_text(json.dumps({"weight": weight, "rows": rows}))
Path(os.environ["KAKEYA_REPORT"]).write_text(json.dumps({"metrics": {"final_loss": loss}}))
"""
RECOMPUTE = """import json, os
from pathlib import Path
kept = json.loads(Path(os.environ["KAKEYA_OUT"], "weights.json").read_text())
rows, weight = kept["rows"], kept["weight"]
print(json.dumps({"final_loss": sum((weight * x - y) ** 2 for x, y in rows) / len(rows)}))
"""
TOML = """schema = 1
name = "my-train"

[environment]
interpreter = "{interpreter}"

[presets.my-train]
description = "Fit a line"
argv = ["train.py", "--lr", "{{lr}}", "--steps", "{{steps}}"]
params.lr = {{ type = "float", min = 0.01, max = 1.0, default = 0.1, help = "learning rate" }}
params.steps = {{ type = "int", min = 1, max = 100, default = 20, help = "steps" }}
limits.wall_s = 120.0

[metrics.final_loss]
pointer = "/metrics/final_loss"
unit = "nats"
better = "lower"
bounds = [0, 100]
repeats = 6

[outputs]
keep = ["weights.json"]
"""
RECOMPUTED = """
[recompute]
argv = ["recompute.py"]
confirms = { final_loss = { numeric = 1e-9 } }
"""


def write_workload(top: Path, *, recompute: bool = False, name: str = "my-train") -> Path:
    """Write the folder and return it; only its owner may change it, and everybody may read it."""
    folder = top / name
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    toml = TOML.format(interpreter=INTERPRETER) + (RECOMPUTED if recompute else "")
    files = {"workload.toml": toml, "train.py": TRAIN, "recompute.py": RECOMPUTE}
    for file, text in files.items():
        write(folder / file, text)
    return folder


def write(path: Path, text: str) -> None:
    """Write a file that others may read."""
    path.write_text(text, "utf-8")
    path.chmod(0o644)


def edit(folder: Path, *changes: tuple[str, str]) -> None:
    """Replace words of its workload.toml, each of which has to be there."""
    path = folder / "workload.toml"
    text = path.read_text("utf-8")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    write(path, text)
