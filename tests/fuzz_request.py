"""Send mutated requests through the parser: whatever comes, a request with these very bytes or the declared error."""

from __future__ import annotations

import argparse
import sys

from tests.fakes.byte_mutator import mutations
from tests.unit.bridge.request.test_parse import SEEDS, only_declared


def main() -> int:
    """Run `--count` inputs; a finding is an exception, printed with the input that made it."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_request", description=__doc__)
    parser.add_argument("--count", type=int, default=2_000_000, help="inputs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="first of the seeds, one for each million inputs")
    call = parser.parse_args()
    accepted = done = 0
    for part in range(0, call.count, 1_000_000):
        for data in mutations(SEEDS, min(1_000_000, call.count - part), call.seed + part // 1_000_000):
            try:
                accepted += only_declared(data)
            except Exception:
                print(f"input: {data!r}", file=sys.stderr)
                raise
            done += 1
    print(f"{done} inputs, {accepted} accepted as what they are, {done - accepted} refused by the declared error")
    return 0


if __name__ == "__main__":
    sys.exit(main())
