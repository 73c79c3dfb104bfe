"""`quote`: the only wording in which a number of a run may be passed on."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING

from bridge.cli.mac.context import Invocation
from bridge.cli.mac.results import find_result, first_row, runs_of_set
from bridge.cli.screen.answer import Answer, Line, Row, Talk, about_run, also_with_error
from bridge.client.document.quoting import QuoteData
from bridge.client.document.untrusted import clean_line
from bridge.client.evidence.judged import JudgedResult
from bridge.client.evidence.quote import quote as quoted_result
from bridge.client.evidence.quote import quote_run
from bridge.client.evidence.standing import StandingSet, quote_set
from bridge.client.run.facts import next_steps
from bridge.ids import short
from bridge.trust.judgement import UNCHECKED

if TYPE_CHECKING:
    from bridge.cli.table.options import QuoteOptions


def quote(call: Invocation[QuoteOptions]) -> Answer:
    """Print a pasteable block of a run, of the result in a folder, or of all sittings of a set, or refuse loudly."""
    option = tuple(call.options.runner_key or ())
    words = runs_of_set(call, call.options.ids)
    if len(words) > 1:
        return _quote_set(call, [find_result(call, word, option)[1] for word in words])
    run, judged = find_result(call, words[0], option)
    result, answer, markdown = judged.result, judged.answer or UNCHECKED, call.options.markdown
    lines: list[Line] = [] if markdown else [first_row(result.id, judged.verdict, judged.answer)]
    with also_with_error(call.output, lines):
        quoted = quoted_result(result, answer, markdown=markdown) if run is None else quote_run(run, markdown=markdown)
    lines += _lines(quoted)
    code = 0 if quoted.lines else 1
    if code:
        lines.append(Row("signature", clean_line(answer.text)))
        lines.append(Talk("error", f" nothing of {short(result.id)} may be quoted"))
    if run is None:
        return Answer(quoted, lines, code)
    status = run.status()
    if code:
        steps = next_steps(run, status)
        lines += [Talk("next", f"  {shlex.join(argv)}") for argv in steps if argv[1] != "quote"]
    return about_run(run, status, lines, exit_code=code, data=asdict(quoted))


def _lines(quoted: QuoteData) -> list[Line]:
    """Return what may be quoted, then why the rest may not."""
    return [*quoted.lines, *(Talk("warn", f"{clean_line(row.claim)}: {row.why}") for row in quoted.refused)]


def _quote_set(call: Invocation[QuoteOptions], results: list[JudgedResult]) -> Answer:
    """Return what the sittings of one set say together, or refuse loudly."""
    sittings_set, markdown = StandingSet.of(results), call.options.markdown
    shown = () if markdown else sittings_set.sittings
    lines: list[Line] = [first_row(judged.result.id, judged.verdict, judged.answer) for judged in shown]
    with also_with_error(call.output, lines):
        quoted = quote_set(sittings_set, markdown=markdown)
    lines += _lines(quoted)
    if not quoted.lines:
        lines.append(Talk("error", f" nothing of these {len(results)} sittings may be quoted"))
    return Answer(quoted, lines, 0 if quoted.lines else 1)
