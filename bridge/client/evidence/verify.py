"""Check a result without trusting whoever shows it: from a folder, an id, or the request branch of a plain clone.

It can say that these bytes are the ones the runner wrote, that they are about this request, and with a pinned key who
wrote them and whether a run of that runner was left out. Only a signature by a pinned key verifies a result: one that
is signed by another key, and one without a signature, are whole at best, so that taking a signature off gains nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bridge.bus.views import Tree
from bridge.client.clone.store import read_folder
from bridge.client.connection.pins import Pins, signature_of
from bridge.client.connection.session import BusSession
from bridge.client.evidence.judged import said_otherwise
from bridge.client.evidence.succession import compare_results, compare_with_bus
from bridge.client.run.result import Result, read_result
from bridge.diagnostics import Check, checked, has_failed
from bridge.errors import IntegrityError, RunNotFoundError
from bridge.gate import identity, judge
from bridge.run.outcomes import UNPROVEN
from bridge.trust.attestation import Attested
from bridge.trust.verifier import verify_tree

UNSIGNED = "integrity only, unsigned: it says what was written, not who wrote it"


@dataclass(frozen=True)
class Verification:
    """The checks of one result, or of several together.

    Attributes:
        run_id: None when there is no manifest to read it from.
        signed: whether a pinned key signed it.
        unproven: where none did, what is missing.
    """

    source: str
    run_id: str | None
    checks: tuple[Check, ...]
    signed: bool
    attested: Attested | None = None
    unproven: str = UNSIGNED

    @property
    def ok(self) -> bool:
        """Whether everything that could be checked holds."""
        return not has_failed(self.checks)

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 0 only where a pinned key says who wrote the result."""
        if not self.ok:
            return 1
        return 0 if self.signed else UNPROVEN

    @property
    def reason(self) -> str:
        """The exit code in a word."""
        return {0: "ok", 1: "integrity", UNPROVEN: "unproven"}[self.exit_code]


def verify_folder(folder: Path, trusted: Pins) -> Verification:
    """Verify a result in a folder, as `fetch` writes it."""
    return verify(read_folder(folder), trusted, source=str(folder))


def verify_id(session: BusSession, run_id: str, trusted: Pins) -> Verification:
    """Verify a run: the stored copy if there is one, else the bus's; the bus's claim and our own bytes count too.

    Raises:
        RunNotFoundError: there is no result of this run, here or on the bus.
    """
    view = session.view(run_id)
    claim = view.claim.claim if view.claim is not None else None
    if session.store.has_result(run_id):
        tree, source = session.store.read_result(run_id), str(session.store.folder(run_id))
    elif claim is not None and claim.result_oid is not None:
        tree, source = session.bus.read_result(claim.result_oid), session.bus.route
    else:
        raise RunNotFoundError(f"run {run_id} has no result to verify", remedy=f"kakeya-mac status {run_id}")
    ended = claim is not None and claim.state == "terminal"
    base = verify(tree, trusted, source=source, run_id=run_id, runner=claim.runner if claim and ended else None)
    extra: list[Check] = []
    sent = session.store.sent(run_id)
    if sent is not None:
        same = tree.files.get("request.json") == sent.data
        extra.append(
            checked("our request", same, "the bytes this clone sent" if same else "not the bytes this clone sent")
        )
    if view.claim is not None and ended:
        extra.append(_chain_on_bus(tree, view.claim.chain, run_id))
    if base.attested is not None:
        extra.append(checked("succession", *compare_with_bus(session.bus, run_id, base.attested, trusted)))
    return replace(base, source=source, checks=(*base.checks, *extra))


def together(verifications: Sequence[Verification]) -> Verification:
    """Return several verifications as one; the runners' numbers must leave nothing out between them."""
    checks = [
        replace(check, name=f"{one.run_id or one.source}: {check.name}")
        for one in verifications
        for check in one.checks
    ]
    attested = [one.attested for one in verifications if one.attested is not None]
    if attested:
        checks.append(checked("succession", *compare_results(attested)))
    missing = next((one.unproven for one in verifications if not one.signed), UNSIGNED)
    signed = all(one.signed for one in verifications)
    return Verification(f"{len(verifications)} results", None, tuple(checks), signed, unproven=missing)


def verify(
    tree: Tree, trusted: Pins, *, source: str, run_id: str | None = None, runner: str | None = None
) -> Verification:
    """Verify a result tree by itself.

    Args:
        tree: the result.
        trusted: the keys of this reader.
        source: where it came from, for people.
        run_id: the run it is said to be of, None to take its word.
        runner: the runner it is said to be of, None to take its word.
    """
    problems = verify_tree(tree.files, run_id=run_id)
    listed = len(tree.files)
    checks = [Check(f"{problem.path}", "fail", problem.message) for problem in problems]
    if not problems:
        size = sum(map(len, tree.files.values()))
        checks.append(Check("manifest", "ok", f"{listed} files, {size} bytes, every digest recomputed"))
        checks.append(Check("claim chain", "ok", "commit ids recomputed from their raw bytes, linked by parent"))
    try:
        result = read_result(tree, run_id)
    except IntegrityError as error:
        if not problems:
            checks.append(Check("result", "fail", error.message))
        return Verification(source, None, tuple(checks), signed=False)
    signature = signature_of(tree.files, trusted, runner=runner)
    signed = signature.state == "verified"
    checks += _judged_again(result, signed=signed)
    if signature.state in {"verified", "refused"}:
        checks.append(checked("signature", signed, signature.text))
    unproven = UNSIGNED if signature.state == "unsigned" else f"integrity only: {signature.text}"
    return Verification(source, result.id, tuple(checks), signed, signature.attested, unproven)


def _judged_again(result: Result, *, signed: bool) -> Iterator[Check]:
    """Judge the reports with the gate here and say what came out, and what the stored verdict says beside it."""
    stored = result.stored
    if stored is None:
        yield Check("verdict", "warn", "there is none: nothing was judged")
        return
    verdict = result.judged(signed=signed)
    yield Check("verdict", "ok", f"{verdict.decision}, judged again with gate {identity().version}: {verdict.headline}")
    if stored.gate.digest == identity().digest:
        yield from _same_gate(result)
    otherwise = said_otherwise(result, verdict)
    if otherwise is not None:
        yield Check("stored verdict", "warn", otherwise)


def _same_gate(result: Result) -> Iterator[Check]:
    """Yield that the verdict in the tree is not the one that its own gate, the one here, gives over its files."""
    record = result.record
    if record is not None and record.attempt is not None and record.attempt.number > 1:
        yield Check("stored verdict", "warn", "not repeated: it pools earlier attempts, which are not in this tree")
        return
    reports = {
        name.removeprefix("reports/"): data for name, data in result.tree.files.items() if name.startswith("reports/")
    }
    again = judge(result.id, reports, record, result.spec, authority="host")
    if again != result.verdict:
        said = "" if result.verdict is None else result.verdict.decision
        yield Check(
            "stored verdict", "fail", f"says {said}, but the same gate gives {again.decision}, or other findings"
        )


def _chain_on_bus(tree: Tree, chain: tuple[str, ...], run_id: str) -> Check:
    """Compare the claim chain in the tree with the one on the bus."""
    result = read_result(tree, run_id)
    recorded = result.record.claims if result.record is not None else ()
    same = tuple(chain[: len(recorded)]) == recorded
    text = f"the bus has the same {len(recorded)} claims" if same else "the claims on the bus are others"
    return checked("bus", same, text)
