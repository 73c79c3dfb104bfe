"""`quote`: the only wording in which a number of a run may be passed on."""

from __future__ import annotations

from bridge.cli.mac.context import Invocation
from bridge.client.document.untrusted import clean_line
from bridge.client.evidence.quote import quote_run
from bridge.client.run.present import document


def quote(call: Invocation) -> int:
    """Print a pasteable block, or refuse loudly."""
    run = call.find_run(call.args.id)
    quoted = quote_run(run, markdown=call.args.markdown)
    for line in quoted.lines:
        call.output.data(line)
    for claim, why in quoted.refused:
        call.output.say("warn", f"{clean_line(claim)} may NOT be quoted: {why}")
    status = run.status()
    code = 0 if quoted.lines else 1
    if code and status.answer is not None:
        call.output.row("signature", clean_line(status.answer.text))
    if code:
        call.output.say("error", f" nothing of {run.short} may be quoted")
    call.output.document({**document(run, status, "quote", exit_code=code), "data": quoted.data()})
    return code
