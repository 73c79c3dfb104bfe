"""What the issue on one root, named keys and one question promises to show."""

from __future__ import annotations

import itertools
import re
import resource
import subprocess
import sys
import tomllib
from collections import Counter

from benchmarks.show import source
from benchmarks.show.line import Line

TABLE = source.ROOT / "tests" / "data" / "attacks.toml"
PAGE = source.ROOT / "docs" / "security-review.md"
TRUST = source.ROOT / "bridge" / "trust"
PYTEST = "python -m pytest -n 0 -q"
OVER_GIT = tuple(
    f"tests/integration/trust/test_{name}.py"
    for name in ("attacks_over_git", "sealed_claims", "stripped", "named_keys")
)
UNIT, GIT = "tests/unit/bridge/trust", "tests/integration/trust"
# Every module of tests that came with the root; what `make test` took before knows none of them.
NEW = (UNIT, *(f"{GIT}/test_{name}.py" for name in ("attacks_over_git", "root_over_git", "read_by_others", "agent_keys",
       "sk_keys")), "tests/unit/bridge/runner/test_names.py", "tests/unit/bridge/runner/test_audit.py")  # fmt: skip
CORES = 2  # what `make test` is promised for


def ran(*tests: str) -> str | None:
    """Return what tests came to, in pytest's own last line."""
    argv = [sys.executable, "-m", "pytest", "-n", "0", "-q", "--no-header", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(argv, cwd=source.ROOT, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    return lines[-1] if lines else None


def added() -> str | None:
    """Return what the tests that came with the root come to, and the processor time that they cost `make test`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = ran(*NEW, "-m", "not slow")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    counts = None if said is None else said.partition(" in ")[0]
    return f"{counts}; {spent:.1f} s of processor time, so {spent / CORES:.1f} s on {CORES} cores"


def attacks() -> str | None:
    """Return how many cells the table has, what they come to, and whether the code agrees."""
    table = tomllib.loads(TABLE.read_text("utf-8"))
    outcomes: Counter[str] = Counter()
    for cell in itertools.product(*(table[one] for one in ("actors", "records", "acts", "readers"))):
        actor, record, act, reader = cell
        wanted = {"actor": actor, "record": record, "act": act, "reader": reader}
        (rule,) = (one for one in table["rule"] if all(value in one.get(key, [value]) for key, value in wanted.items()))
        outcomes[rule["outcome"]] += 1
    said = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    return f"{sum(outcomes.values())} cells: {said}; {ran(f'{UNIT}/test_attacks.py')}"


def read_by_others() -> str | None:
    """Return how long the test with python-tuf is, and whether other programs read what is signed."""
    text = (source.ROOT / GIT / "test_read_by_others.py").read_text("utf-8")
    found = re.search(r"^def test_python_tuf.*?(?=^def |\Z)", text, re.MULTILINE | re.DOTALL)
    length = 0 if found is None else len(found[0].strip().splitlines())
    others = "tests/unit/bridge/publish/test_attestation.py"
    return f"python-tuf in {length} lines; {ran(f'{GIT}/test_read_by_others.py', others)}"


def review() -> str | None:
    """Return how many files are to be read, how long the room is, and whether every call lies in them."""
    files = re.findall(r"^\| \d+ \| \[(\S+)\]", PAGE.read_text("utf-8"), re.MULTILINE)
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in TRUST.glob("*.py"))
    return f"{len(files)} files; bridge/trust has {lines} lines; {ran(f'{UNIT}/test_review.py')}"


LINES: tuple[Line, ...] = (
    Line(
        "An attack matrix: actor x record x act x reader, the expected column written by hand before; in process",
        f"{PYTEST} {UNIT}/test_attacks.py",
        attacks,
    ),
    Line(
        "The attacks once per record over real git, before every reader",
        f"{PYTEST} {' '.join(OVER_GIT)}",
        lambda: ran(*OVER_GIT),
    ),
    Line(
        "A Hypothesis state machine of rotation, retirement, revocation with readers who were away; no push war",
        f"{PYTEST} {UNIT}/test_root_machine.py {UNIT}/test_root_keeping.py",
        lambda: ran(f"{UNIT}/test_root_machine.py", f"{UNIT}/test_root_keeping.py"),
    ),
    Line(
        "Stolen runner account cannot sign a root; lost owner key: the documented way back works; expiry stops nothing",
        f"{PYTEST} {UNIT}/test_owner.py {GIT}/test_root_over_git.py -k 'stolen or lost or expiry or owner'",
        lambda: ran(f"{UNIT}/test_owner.py", f"{GIT}/test_root_over_git.py", "-k", "stolen or lost or expiry or owner"),
    ),
    Line(
        "Read by others: python-tuf's verify_delegate in <= 40 lines, ssh-keygen -Y verify, in-toto and DSSE readers",
        f"{PYTEST} {GIT}/test_read_by_others.py tests/unit/bridge/publish/test_attestation.py",
        read_by_others,
    ),
    Line(
        "docs/security-review.md: ten files, every signature call lies in them; bridge/trust <= 2,500 lines",
        f"{PYTEST} {UNIT}/test_review.py",
        review,
    ),
    Line(
        "Adds <= 20 s to make test",
        f"{PYTEST} -m 'not slow' {' '.join(NEW)}",
        added,
    ),
)
