"""What a requester who never saw a host knows of its presets: name, parameters, bounds, metrics, and changes."""

from __future__ import annotations

from contextlib import suppress

import pytest

from bridge.cli.mac.agents.tools import tools_of
from bridge.cli.table.completion import script
from bridge.errors import UsageError
from bridge.mcp.offer import FRESH_S, Offer
from bridge.presets.workloads import read_folder
from bridge.records.request import Request
from tests.fakes.memory_bus import Faults
from tests.fakes.requester import Requester
from tests.fakes.scripted_host import PRESETS, ScriptedHost
from tests.support.workload_folder import INTERPRETER, edit, write_workload
from tests.unit.bridge.cli.looking import published


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_workload(tmp_path_factory.mktemp("w"))


@pytest.fixture(scope="module")
def own(folder):
    return read_folder(folder, INTERPRETER).presets["my-train"]


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The same name on another host: without one parameter."""
    folder = write_workload(tmp_path_factory.mktemp("other"))
    steps = 'params.steps = { type = "int", min = 1, max = 100, default = 20, help = "steps" }\n'
    edit(folder, (', "--steps", "{steps}"', ""), (steps, ""), ("Fit a line", "Fit another line"))
    return read_folder(folder, INTERPRETER).presets["my-train"]


@pytest.fixture(scope="module")
def worded(tmp_path_factory):
    """The same name on a host that takes any text as its steps."""
    folder = write_workload(tmp_path_factory.mktemp("worded"))
    number = 'params.steps = { type = "int", min = 1, max = 100, default = 20, help = "steps" }'
    edit(folder, (number, 'params.steps = { type = "text", pattern = ".*", default = "20", help = "steps" }'))
    return read_folder(folder, INTERPRETER).presets["my-train"]


@pytest.fixture
def requester(tmp_path):
    return Requester(tmp_path)


@pytest.fixture
def host(requester, own):
    host = ScriptedHost(requester.bus, requester.clock)
    host.offer(own)
    return host


def test_presets_show_and_explain_know_parameters_bounds_and_metrics(requester, host, own):
    listed = requester.run("presets", "--json").document["data"]
    published("data-presets").validate(listed)
    assert [row["name"] for row in listed if row["definition"]] == ["my-train"]
    shown = requester.run("presets", "show", "my-train").out
    assert "lr: learning rate (float; default 0.1, min 0.01, max 1.0)" in shown
    assert "metric      final_loss (median, nats, lower is better, 0 to 100)" in shown
    assert own.digest() in shown
    assert "--lr 0.5" in requester.run("explain", "my-train", "-p", "lr=0.5").out


def test_what_a_bus_offers_and_what_a_result_says_ran_carry_no_escape_to_a_terminal(requester, host, own):
    escape = "x\x1b]52;c;cm0gLXJm\x07\u202ey"
    (command,) = own.commands[:1]
    hostile = own.model_copy(update={"commands": (command.model_copy(update={"argv": (*command.argv, escape)}),)})
    host.offer(hostile)
    run_id = requester.run("run", "my-train").out.strip()
    host.claim(run_id)
    host.start(run_id)
    host.finish(run_id)
    for words in (("presets", "show", "my-train"), ("explain", "my-train"), ("explain", run_id)):
        ran = requester.run(*words)
        assert (ran.code, "xy" in ran.out) == (0, True), ran.err
        assert not {"\x1b", "\x07", "\u202e"} & set(ran.out), words


def test_a_parameter_out_of_its_bounds_is_refused_before_anything_is_sent(requester, host):
    for word, message in (
        ("lr=7", "0.01 to 1.0"),
        ("steps=x", "expected a whole number from"),
        ("beta=1", "no parameter 'beta'"),
    ):
        ran = requester.run("run", "my-train", "-p", word)
        assert (ran.code, message in ran.err) == (2, True)
    assert requester.bus.snapshot().requests == ()


def test_two_hosts_that_differ_are_told_apart(requester, host, other):
    second = ScriptedHost(requester.bus, requester.clock, name="big")
    second.offer(other)
    assert "hosts offer different definitions" in requester.run("run", "my-train").err
    listed = requester.run("presets").out
    assert "my-train@mini" in listed
    assert "my-train@big" in listed
    assert "steps" not in requester.run("presets", "show", "my-train@big").out
    ran = requester.run("run", "my-train@big", "-p", "lr=0.2")
    assert ran.code == 0, ran.err
    (sent,) = [Request.parse(requester.bus.read_request(ref).data) for ref in requester.bus.snapshot().requests]
    assert (sent.preset, sent.runner.name, dict(sent.params)) == ("my-train", "big", {"lr": 0.2})
    assert "does not offer" in requester.run("run", "my-train@none").err


def test_a_changed_definition_is_said_once_at_run(requester, host, other):
    assert "was changed" not in requester.run("run", "my-train", "--dry-run").err
    host.offer(other)
    assert "my-train of mini was changed since your last run" in requester.run("run", "my-train", "--dry-run").err
    assert "was changed" not in requester.run("run", "my-train", "--dry-run").err


class Commands:
    """What an agent's tools run, as a requester types it."""

    tools = staticmethod(tools_of)

    def __init__(self, requester):
        self.clock, self._requester = requester.clock, requester

    def answer(self, words):
        return self._requester.run(*words, "--json").document


def test_an_agents_tools_have_its_parameters_and_name_its_metrics(requester, host, other):
    tool = Offer(Commands(requester)).find("run")
    assert tool.schema["properties"]["preset"]["enum"][0] == "my-train"
    assert "final_loss (median, nats, lower is better, 0 to 100)" in tool.description
    assert tool.words({"preset": "my-train", "param": {"lr": 0.5}}) == ["run", "my-train", "-p", "lr=0.5"]
    second = ScriptedHost(requester.bus, requester.clock, name="big")
    second.offer(other)
    tool = Offer(Commands(requester)).find("run")
    assert tool.schema["properties"]["preset"]["enum"][:2] == ["my-train@big", "my-train@mini"]
    assert tool.words({"preset": "my-train@big"})[:2] == ["run", "my-train@big"]
    with pytest.raises(UsageError, match="takes lr"):
        tool.words({"preset": "my-train@big", "param": {"steps": 3}})


def test_an_agent_keeps_its_tools_while_a_bus_that_offers_presets_of_its_own_does_not_answer(requester, host, own):
    def presets():
        return offer.find("run").schema["properties"]["preset"].get("enum", [])

    offer = Offer(Commands(requester))
    assert "my-train" in presets()
    requester.bus.store.faults = Faults(lambda operation: "lost")
    requester.clock.sleep(FRESH_S + 1)
    assert presets() == []
    assert offer.find("status").words({"id": "@last"}) == ["status", "@last"]
    requester.bus.store.faults = Faults()
    requester.clock.sleep(FRESH_S + 1)
    host.offer(own)
    assert "my-train" in presets()


def test_completion_reads_the_names_that_were_offered_last(requester, host):
    requester.run("presets")
    assert (requester.folder / "data" / "offered").read_text() == "my-train\n"
    assert "/offered" in script("bash")
    host.beat(presets=PRESETS)
    requester.run("presets")
    assert (requester.folder / "data" / "offered").read_text() == ""


@pytest.mark.parametrize("word", ["LR=1", "a b=1", "lr=1e999", f"{'l' * 64}=1"])
def test_a_parameter_that_no_request_holds_is_refused_where_its_host_alone_knows_the_preset(requester, host, word):
    host.beat(presets=(*PRESETS, "my-train"))
    ran = requester.run("run", "my-train", "-p", word)
    assert (ran.code, f"parameter {word.partition('=')[0]!r}: " in ran.err) == (2, True), ran.err
    assert requester.bus.snapshot().requests == ()


@pytest.mark.parametrize("broken", [{}, {"name": "my-train"}, {"name": "k3-native-baseline", "schema": 9}])
def test_a_definition_that_is_none_is_no_offer_and_no_error(requester, host, broken):
    host.beat(presets=(*PRESETS, "my-train"), offers=(broken,))
    assert "my-train" not in requester.run("presets").out
    assert requester.run("run", "my-train", "--dry-run").code == 0  # its host checks the parameters
    ran = requester.run("run", "my-train", "--against", "main")
    assert (ran.code, "known to its host alone" in ran.err) == (2, True), ran.err
    assert requester.bus.snapshot().requests == ()


def test_against_takes_a_revision_and_is_refused_where_no_commits_are_compared(requester, host, folder, tmp_path):
    ran = requester.run("run", "my-train", "--against", "main")
    assert ran.code == 2
    assert "compares no commits" in ran.err
    twin = write_workload(tmp_path, name="twin")
    edit(
        twin,
        ("[presets.my-train]", "[presets.twin]"),
        ("repeats = 6", 'ratio = { commits = ["train.py"] }'),
        ('pointer = "/metrics/final_loss"\nunit = "nats"\nbetter = "lower"\nbounds = [0, 100]\n', ""),
        ('argv = ["train.py", "--lr", "{lr}", "--steps", "{steps}"]\n', ""),
    )
    with suppress(OSError):
        (twin / "recompute.py").unlink()
    text = "\n".join(line for line in (twin / "workload.toml").read_text().splitlines() if "params." not in line)
    (twin / "workload.toml").write_text(text.replace('name = "my-train"', 'name = "twin"'))
    preset = read_folder(twin, INTERPRETER).presets["twin"]
    assert preset.commits == ("against",)
    host.offer(preset)
    shown = requester.run("presets", "show", "twin").out
    assert "the request's tree" in shown
    ran = requester.run("run", "twin", "--against", "main")
    assert ran.code == 2  # nowhere to take code from
    assert "run it inside a git clone" in ran.err


@pytest.mark.parametrize("text", ["a\tb", "a\x85b", "a\u2028b", "a\udcffb"])
def test_a_text_that_no_request_may_hold_is_refused_by_its_name_whatever_the_preset_takes(requester, worded, text):
    ScriptedHost(requester.bus, requester.clock).offer(worded)
    ran = requester.run("run", "my-train", "-p", f"steps={text}")
    assert ran.code == 2, ran.err
    assert "parameter 'steps': expected one line of at most" in ran.err
    assert not requester.bus.snapshot().requests


@pytest.mark.parametrize("preset", ["my-train", "owners-own"])
def test_a_text_with_spaces_of_any_script_is_sent_as_it_is(requester, worded, preset):
    host = ScriptedHost(requester.bus, requester.clock)
    host.offer(worded)
    host.beat(presets=(*PRESETS, *host.own, "owners-own"), offers=requester.bus.read_beacons()[0][1].offers)
    ran = requester.run("run", preset, "-p", "steps=two\u3000words\xa0more", "--json")
    assert ran.code == 0, ran.err
    assert ran.document["request"]["params"]["steps"] == "two\u3000words\xa0more"
