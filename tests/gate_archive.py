"""Where the gate of a stored verdict is: in this repository's history, found by the digest that the verdict names.

`python -m tests.gate_archive` looks for the gate of every stored verdict below docs/evidence and writes
docs/evidence/gates.json, digest to commit; `git archive COMMIT bridge` unpacks one.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from functools import cache

from bridge.gate import identity
from tests.drift import ROOT

TABLE = ROOT / "docs" / "evidence" / "gates.json"
FOLDERS = {"bridge/gate": "", "bridge/launches": "../launches/"}
SUFFIXES = (".py", ".json", ".toml")


def digest_at(commit: str) -> str:
    """Return the digest of the gate at a commit, from its objects, as `bridge.gate.identity` computes it."""
    sources = []
    for folder, prefix in FOLDERS.items():
        for line in _git("ls-tree", "-r", commit, f"{folder}/").decode().splitlines():
            entry, path = line.split("\t")
            if path.endswith(SUFFIXES):
                sources.append((prefix + path.removeprefix(f"{folder}/"), _blob(entry.split()[2])))
    digest = hashlib.sha256()
    for name, data in sorted(sources):
        digest.update(f"{len(name)}:{name}:{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


def stored() -> dict[str, list[str]]:
    """Return the digests of other gates that verdicts below docs/evidence name, each with their folders."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "docs" / "evidence").rglob("verdict.json")):
        digest = json.loads(path.read_bytes())["gate"]["digest"]
        if digest != identity().digest:
            found.setdefault(digest, []).append(path.parent.name)
    return found


def table() -> dict[str, str]:
    """Return the committed table: digest to commit."""
    found: dict[str, str] = json.loads(TABLE.read_text("utf-8"))
    return found


def main() -> None:
    """Look for the gates of stored verdicts in the history and write the table."""
    known = {digest: commit for digest, commit in table().items() if digest in stored()} if TABLE.exists() else {}
    open_ = set(stored()) - set(known)
    for commit in _git("log", "--format=%H", "--", *FOLDERS).decode().split() if open_ else ():
        digest = digest_at(commit)
        if digest in open_:
            known[digest] = commit
            open_.discard(digest)
    TABLE.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", encoding="utf-8")
    if open_:
        raise SystemExit(f"error: no commit of this history holds the gates {', '.join(sorted(open_))}")


@cache
def _blob(oid: str) -> bytes:
    return _git("cat-file", "blob", oid)


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout


if __name__ == "__main__":
    main()
