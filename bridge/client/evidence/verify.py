"""Check a result without trusting whoever shows it: from a folder, an id, or the request branch of a plain clone.

It can say that these bytes are the ones the runner wrote, that they are about this request, and with a pinned key who
wrote them and whether a run of that runner was left out. Only a signature verifies a result, by a key that may say what
it says; the reports are judged again each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bridge.bus.tree import Tree
from bridge.client.clone.store import read_tree
from bridge.client.connection.pins import Pins
from bridge.client.connection.session import BusSession
from bridge.client.evidence.judged import JudgedResult, said_otherwise, word_of_stored
from bridge.client.evidence.succession import compare_results, compare_with_bus
from bridge.client.run.result import Result, read_result
from bridge.diagnostics import Check, checked, has_failed
from bridge.errors import IntegrityError, RunNotFoundError
from bridge.gate.identity import identity
from bridge.gate.judging import judge
from bridge.records.quotation import of_verdict
from bridge.records.verdict import StoredVerdict, Verdict
from bridge.run.outcomes import ANSWER_CODES, JUDGED_DIFFERENTLY
from bridge.trust.attestation import Attested
from bridge.trust.judgement import TrustAnswer
from bridge.trust.verifier import judge_result, verify_tree


@dataclass(frozen=True)
class Verification:
    """The checks of one result, or of several together.

    Attributes:
        run_id: None when there is no manifest to read it from.
        answer: whether its runner may say what it says; ``altered`` where the tree is not whole.
        differs: whether the gate here judges its reports differently.
        verdict: what it says of them; None where nothing was judged.
        result: what was read; None of several results, or where the tree holds none.
    """

    source: str
    run_id: str | None
    checks: tuple[Check, ...]
    answer: TrustAnswer
    attested: Attested | None = None
    differs: bool = False
    verdict: Verdict | None = None
    result: Result | None = None

    @property
    def judged(self) -> JudgedResult | None:
        """The result as it was judged here; None where there is none."""
        return None if self.result is None else JudgedResult(self.result, self.verdict, self.answer)

    @property
    def ok(self) -> bool:
        """Whether everything that could be checked holds."""
        return not has_failed(self.checks)

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 0 only where a key that may say so signed it."""
        if self.answer.refused:
            return ANSWER_CODES[self.answer.word]
        if self.differs:
            return JUDGED_DIFFERENTLY
        return ANSWER_CODES[self.answer.word] if self.ok else 1

    @property
    def reason(self) -> str:
        """The exit code in a word or two."""
        if self.differs and not self.answer.refused:
            return "judged differently"
        return self.answer.word if self.ok or self.answer.refused else "findings"


def verify_folder(folder: Path, trusted: Pins) -> Verification:
    """Verify a result in a folder, as `fetch` writes it."""
    return verify(read_tree(folder), trusted, source=str(folder))


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
    runner = claim.runner if claim and ended else None
    base = verify(tree, trusted, source=source, run_id=run_id, runner=runner)
    if base.answer.revoked and (at := session.archived_at(run_id, tree.files)) is not None:
        base = verify(tree, trusted, source=source, run_id=run_id, runner=runner, archived_at=at)
    extra: list[Check] = []
    sent = session.store.sent(run_id)
    if sent is not None:
        same = tree.files.get("request.json") == sent.data
        extra.append(
            checked("our request", same, "the bytes this clone sent" if same else "not the bytes this clone sent")
        )
    if view.claim is not None and ended:
        extra.append(_chain_on_bus(tree, view.claim.chain, run_id))
    if base.attested is not None and base.answer.signed:
        extra.append(_succession(*compare_with_bus(session.bus, run_id, base.attested, trusted)))
    answer = base.answer
    if has_failed(extra):
        answer = TrustAnswer("altered", "it is not what this clone sent, or not what the bus has")
    return replace(base, source=source, checks=(*base.checks, *extra), answer=answer)


def together(verifications: Sequence[Verification]) -> Verification:
    """Return several verifications as one, with a note where the runners' numbers leave something out between them."""
    checks = [
        replace(check, name=f"{verification.run_id or verification.source}: {check.name}")
        for verification in verifications
        for check in verification.checks
    ]
    attested = [
        verification.attested
        for verification in verifications
        if verification.attested is not None and verification.answer.signed
    ]
    if attested:
        checks.append(_succession(*compare_results(attested)))
    order = ("altered", "untrusted", "unsigned", "first use", "verified")
    weakest = min((verification.answer for verification in verifications), key=lambda answer: order.index(answer.word))
    differs = any(verification.differs for verification in verifications)
    return Verification(f"{len(verifications)} results", None, tuple(checks), weakest, differs=differs)


def _succession(whole: bool, text: str) -> Check:
    """Return what is said of the runner's other results: a note, as a gap says nothing of this one."""
    return Check("succession", "ok" if whole else "warn", text)


def verify(
    tree: Tree,
    trusted: Pins,
    *,
    source: str,
    run_id: str | None = None,
    runner: str | None = None,
    archived_at: float | None = None,
) -> Verification:
    """Verify a result tree by itself.

    Args:
        tree: the result.
        trusted: the keys of this reader.
        source: where it came from, for people.
        run_id: the run it is said to be of, None to take its word.
        runner: the runner it is said to be of, None to take its word.
        archived_at: when another runner archived the claim that names it, None where none did.
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
        return Verification(source, None, tuple(checks), TrustAnswer("altered", error.message))
    judged = judge_result(tree.files, trusted.authority, runner=runner, signs=trusted.signs, archived_at=archived_at)
    answer = TrustAnswer("altered", str(problems[0])) if problems else judged.answer
    verdict = None if result.stored is None else result.judged(signed=answer.signed)
    again, differs = _judged_again(result, verdict, signed=answer.signed)
    if judged.answer.signed or judged.answer.refused:
        checks.append(checked("signature", not judged.answer.refused, judged.answer.text))
    if not any(problem.path.startswith("reports/") for problem in problems):
        again += _derived_again(result)
    return Verification(source, result.id, (*checks, *again), answer, judged.attested, differs, verdict, result)


def _judged_again(result: Result, verdict: Verdict | None, *, signed: bool) -> tuple[list[Check], bool]:
    """Judge the reports with the gate here, always; return what came out, and whether the host's verdict is another.

    A host saw its run; a reader goes by a signature for that. So the two are compared with the host's eyes.
    """
    stored = result.stored
    if stored is None or verdict is None:
        return [Check("verdict", "warn", "there is none: nothing was judged")], False
    pooled = "it pools earlier attempts, which are not in this tree"
    if result.takes_verdict(signed=signed):
        text = f"by its host with this very gate, not judged again: {pooled}. {verdict.headline}"
        return [Check("verdict", "warn", text)], False
    checks = [Check("verdict", "ok", f"judged again with gate {identity().version}: {verdict.headline}")]
    differs = _differs(result, stored)
    if differs is not None and result.pools:
        return [*checks, Check("stored verdict", "warn", f"not repeated: {pooled}")], False
    if differs is not None:
        return [*checks, Check("stored verdict", "fail", differs)], True
    otherwise = said_otherwise(result, verdict)
    return [*checks, *([] if otherwise is None else [Check("stored verdict", "warn", otherwise)])], False


def _derived_again(result: Result) -> Iterator[Check]:
    """Yield whether `derived.json` is what the gate here derives from the same files, byte by byte.

    Another gate may derive something else: that is a note. A result of a gate that derived nothing has none.
    """
    stored, judged = result.tree.files.get("derived.json"), result.stored
    if judged is None or (stored is None and judged.gate.digest != identity().digest):
        return
    if stored == result.derived.evolve(gate=judged.gate).canonical():
        yield Check("derived", "ok", "derived.json computed again from the reports: the same bytes")
    elif judged.gate.digest == identity().digest:
        why = "is missing" if stored is None else "is not what the same gate derives from these reports"
        yield Check("derived", "fail", f"derived.json {why}")
    else:
        digests = f"({judged.gate.digest[:12]}); the gate here ({identity().digest[:12]})"
        yield Check("derived", "warn", f"derived differently: by another gate {digests} derives other numbers")


def _differs(result: Result, stored: StoredVerdict) -> str | None:
    """Return that the gate here would have said something else on the host, None where it would not."""
    files = result.tree.files
    reports = {name.removeprefix("reports/"): data for name, data in files.items() if name.startswith("reports/")}
    record, gate = result.record, identity()
    if record is not None and record.gate_digest == stored.gate.digest:  # on that host it would have been this one
        record = record.evolve(gate_digest=gate.digest, runner_version=gate.version)
    again = judge(result.id, reports, record, result.spec, authority="host")
    host = result.verdict
    # By their bytes: a pair in the detail of a claim is a tuple where it was judged, and a list where it was read.
    if stored.gate.digest == gate.digest and (host is None or again.canonical() != host.canonical()):
        return f"says {word_of_stored(stored)}, but the same gate says {of_verdict(again)}, or finds other things"
    return said_otherwise(result, again)


def _chain_on_bus(tree: Tree, chain: tuple[str, ...], run_id: str) -> Check:
    """Compare the claim chain in the tree with the one on the bus."""
    result = read_result(tree, run_id)
    recorded = result.record.claims if result.record is not None else ()
    same = tuple(chain[: len(recorded)]) == recorded
    text = f"the bus has the same {len(recorded)} claims" if same else "the claims on the bus are others"
    return checked("bus", same, text)
