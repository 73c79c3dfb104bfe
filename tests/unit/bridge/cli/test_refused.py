"""A result that nobody who may say so signed: every command about it refuses, in a code that its help names."""

from __future__ import annotations

import pytest

from bridge.cli.table import parser
from bridge.cli.table.commands import MAC
from bridge.run.outcomes import ANSWER_CODES
from tests.fakes.requester import Requester
from tests.fakes.scripted_host import ScriptedHost
from tests.unit.bridge.cli.looking import take


@pytest.mark.parametrize("stored", [False, True], ids=["fetched", "stored"])
@pytest.mark.parametrize(
    "words",
    [
        ("status", "ID"), ("logs", "ID"), ("fetch", "ID"), ("open", "ID"), ("report", "ID"), ("compare", "ID", "ID"),
        ("explain", "ID"), ("quote", "ID"), ("gate", "explain", "speed", "ID"),
    ],
)  # fmt: skip
def test_the_codes_of_a_refused_result_are_among_those_that_a_command_says_it_ends_in(tmp_path, words, stored):
    requester = Requester(tmp_path)
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    run_id = requester.run("run", "mlx-env-probe").out.strip()
    take(host, run_id)
    if stored:
        requester.run("fetch", run_id)
    requester.pin(host.sign())  # after it, what is not signed is nobody's
    ran = requester.run(*(run_id if word == "ID" else word for word in words), "--json")
    assert (ran.code, ran.document["outcome"]["reason"]) == (ANSWER_CODES["untrusted"], "untrusted")
    assert ran.code in parser.exit_codes(MAC.find(list(words))[0])
