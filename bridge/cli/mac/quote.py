"""`quote`: the only wording in which a number of a run may be passed on."""

from __future__ import annotations

from bridge.cli.mac.context import Invocation
from bridge.cli.mac.results import find_result, runs_of_set, say_first
from bridge.client.document.envelope import of_data
from bridge.client.document.untrusted import clean_line
from bridge.client.evidence.judged import JudgedResult
from bridge.client.evidence.quote import quote as quoted_result
from bridge.client.evidence.quote import quote_run
from bridge.client.evidence.standing import StandingSet, quote_set
from bridge.client.run.present import document
from bridge.ids import short
from bridge.trust.judgement import UNCHECKED


def quote(call: Invocation) -> int:
    """Print a pasteable block of a run, of the result in a folder, or of all sittings of a set, or refuse loudly."""
    option = tuple(call.args.runner_key or ())
    words = runs_of_set(call, call.args.ids)
    if len(words) > 1:
        return _quote_set(call, [find_result(call, word, option)[1] for word in words])
    run, judged = find_result(call, words[0], option)
    result, answer, markdown = judged.result, judged.answer or UNCHECKED, call.args.markdown
    if not markdown:
        say_first(call, result.id, judged.verdict, judged.answer)
    quoted = quoted_result(result, answer, markdown=markdown) if run is None else quote_run(run, markdown=markdown)
    for line in quoted.lines:
        call.output.data(line)
    for claim, why in quoted.refused:
        call.output.say("warn", f"{clean_line(claim)}: {why}")
    code = 0 if quoted.lines else 1
    if code:
        call.output.row("signature", clean_line(answer.text))
        call.output.say("error", f" nothing of {short(result.id)} may be quoted")
    if run is None:
        call.output.document(of_data("quote", quoted.data(), exit_code=code))
    else:
        call.output.document({**document(run, run.status(), "quote", exit_code=code), "data": quoted.data()})
    return code


def _quote_set(call: Invocation, results: list[JudgedResult]) -> int:
    """Print what the sittings of one set say together, or refuse loudly."""
    sittings_set, markdown = StandingSet.of(results), call.args.markdown
    for judged in () if markdown else sittings_set.sittings:
        say_first(call, judged.result.id, judged.verdict, judged.answer)
    quoted = quote_set(sittings_set, markdown=markdown)
    for line in quoted.lines:
        call.output.data(line)
    for claim, why in quoted.refused:
        call.output.say("warn", f"{clean_line(claim)}: {why}")
    if not quoted.lines:
        call.output.say("error", f" nothing of these {len(results)} sittings may be quoted")
    code = 0 if quoted.lines else 1
    call.output.document(of_data("quote", {**quoted.data(), "standing": sittings_set.data()}, exit_code=code))
    return code
