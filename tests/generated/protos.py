"""Python modules made from the .proto files of the package."""

from __future__ import annotations

import tempfile
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTOS = ROOT / "engine" / "distributed" / "kakeya" / "v1"


def generate() -> dict[str, str]:
    """Return the generated modules and their stubs by path."""
    from grpc_tools import protoc

    names = [str(path.relative_to(ROOT)) for path in sorted(PROTOS.glob("*.proto"))]
    with tempfile.TemporaryDirectory() as folder:
        outputs = [f"--python_out={folder}", f"--pyi_out={folder}"]
        includes = [f"-I{ROOT}", f"-I{files('grpc_tools') / '_proto'}"]
        if protoc.main(["protoc", *includes, *outputs, *names]) != 0:
            raise ValueError(f"protoc refused {', '.join(names)}; see what it wrote above")
        made = sorted(Path(folder).rglob("*.py*"))
        return {str(path.relative_to(folder)): path.read_text("utf-8") for path in made}
