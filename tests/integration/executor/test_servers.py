"""Real servers are started, asked and ended by a real supervisor: honest ones, such as misbehave, and such as cheat."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import statistics
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from bridge.executor.local import LocalExecutor
from bridge.gate.facts.served_answers import served_of
from bridge.gate.interface import Evidence, Report
from bridge.gate.rules.servers import compare_prompts_nobody_knew, recount_served_answers, require_idle_servers
from bridge.launches import ask_servers
from bridge.presets.workloads.servers import asker, holder
from bridge.records.jobspec import Command
from bridge.records.turns import LaunchSeries, StopRule
from bridge.records.workload import ServersDefinition, WorkloadDefinition
from bridge.run.stop_rule import log_ratio
from bridge.system.clock import SystemClock
from tests.fakes import inference_server
from tests.fakes.local_jobs import Jobs, living
from tests.support import guarded
from tests.support.waiting import until

SERVER = Path(inference_server.__file__)
ARMS = ("baseline", "candidate")
SIDES = "\n".join(f'[servers.{arm}]\ncommand = ["unused {{port}}"]\nmodel = "m"' for arm in ARMS)
ALONE = '[servers.baseline]\ncommand = ["unused {port}"]\nmodel = "m"'
COUNTING_S = 0.3
COUNTS_SLOWLY = """
with open({program!r}, "rb") as source:
    exec(compile(source.read(), {program!r}, "exec"))


class Tokens(Tokens):
    def count(self, text):
        time.sleep({seconds})
        return super().count(text)
"""
ENOUGH = 6
"""Launches: fewer have no interval that a check could rest on."""


def described(top: Path, sides: str, *, tokenizer: bool) -> Path:
    folder = top / "pair"
    folder.mkdir(exist_ok=True)
    prompts = json.dumps(list(inference_server.PINNED))
    counted = f'tokenizer = "{words_tokenizer(folder)}"\n' if tokenizer else ""
    (folder / "workload.toml").write_text(f"[servers]\nmax_tokens = 12\nprompts = {prompts}\n{counted}{sides}\n")
    return folder


def words_tokenizer(folder: Path) -> str:
    """Write a tokenizer of which each word of the small servers is a token; return its name below the folder."""
    vocabulary = {f"{number:03x}": number for number in range(4096)} | {"the": 4096, "?": 4097}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens([inference_server.END])
    (folder / "words").mkdir(exist_ok=True)
    made.save(str(folder / "words" / "tokenizer.json"))
    (folder / "words" / "tokenizer_config.json").write_text(json.dumps({"eos_token": inference_server.END}))
    return "words"


def series_of(launches: int) -> LaunchSeries:
    return LaunchSeries(arms=ARMS, rule=StopRule(least=launches, most=launches), unit="samples", solo_s=0.0)


def asked(
    jobs: Jobs,
    modes: tuple[str, ...],
    top: Path,
    *,
    launches: int = 2,
    streams: int = 1,
    sides: str = SIDES,
    tokenizer: bool = False,
    target: tuple[str, ...] = (),
    stop=lambda: None,
    asker_python: str = sys.executable,
    inactivity_s: float = 240.0,
    program: Path | None = None,
):
    """Run servers of these modes; return what the run came to."""
    python, server = sys.executable, described(top, sides, tokenizer=tokenizer) / SERVER.name
    shutil.copy(SERVER, server)  # by its path its processes are this test's
    argv = [python, "-I", "-S", str(holder())]
    for arm, mode in zip(ARMS, modes, strict=False):
        argv += [f"--@{arm}", python, "-I", "-S", str(server), *mode.split()[:1], "@PORT@", *mode.split()[1:]]
    command = Command(
        name="servers",
        argv=tuple(argv),
        launches=series_of(launches),
        folder="servers",
        asker=(asker_python, "-I", "-S", str(program or asker()), str(top / "pair"), str(streams), *target),
    )
    spec = jobs.spec(argv=[command.argv], outputs=("servers/report.json",), inactivity_s=inactivity_s)
    sandbox = spec.sandbox.evolve(read_only=(str(top / "pair"), str(holder())))
    return jobs.execute(spec.evolve(commands=(command,), sandbox=sandbox), stop=stop)


def evidence_of(execution, sides: tuple[str, ...] = ARMS) -> tuple[Report, Evidence]:
    """Return the runner's own report, and what the rules look at."""
    value = json.loads(execution.reports["servers/report.json"])
    body = {"kind": "workload", "arms": [], "repeats": [{"path": "servers/report.json", "seed": None, "value": value}]}
    report = Report("repeats", b"", body)
    definition = WorkloadDefinition(
        name="w", digest="0" * 64, program="w", metrics=(),
        servers=ServersDefinition(sides=sides, same_weights=True),
    )  # fmt: skip

    class Spec:
        workload = definition

    return report, Evidence((report,), None, Spec(), {})


def found(rule, execution, sides: tuple[str, ...] = ARMS) -> list[str]:
    _, evidence = evidence_of(execution, sides)
    return [violation.message for violation in rule(evidence)]


@pytest.fixture(params=["plain", "sandboxed"])
def honest(request, tmp_path, executor, need_sandbox):
    if request.param != "plain":
        need_sandbox(request.param)
    return asked(Jobs(executor, tmp_path, request.param), ("honest 4", "honest 2"), tmp_path, streams=2)


def test_two_servers_are_started_asked_by_turns_and_ended(honest, tmp_path):
    execution = honest
    assert (execution.ok, execution.ending, execution.program_exit) == (True, "exited", 0), execution.log
    assert [launch.cut for launch in execution.launches] == [None] * 3
    assert living(str(tmp_path)) == []
    for launch in execution.launches[1:]:
        assert {(turn.arm, turn.sample, turn.tokens) for turn in launch.turns} == {
            (arm, sample, 24) for arm in ARMS for sample in range(2)
        }
        for turn in launch.turns:  # what a server waits before each of its tokens
            assert turn.done_s - turn.go_s >= 12 * (0.004 if turn.arm == "baseline" else 0.002)
        assert log_ratio(series_of(2), launch) is not None
    served = served_of(evidence_of(execution)[0])
    assert len(served.asker_s) == 2
    assert all(0.0 < seconds < 1.0 for seconds in served.asker_s)
    assert {answer.half for answer in served.answers} == {"pinned", "continued", "whole"}
    assert {answer.half for answer in served.timed} == {"pinned", "continued"}
    assert all(first.text == second.text for first, second in served.pairs())
    assert all(set(turn.cpu_s) == {*ARMS, "neither"} for turn in served.turns)
    assert found(recount_served_answers, execution) == []


@pytest.mark.parametrize(
    ("modes", "says"),
    [
        pytest.param(("honest", "refuses"), "candidate: answers 400: ", id="refuses"),
        pytest.param(("dies", "honest"), "baseline: the server ended by itself, exit code 3", id="dies"),
        pytest.param(
            ("honest", "leaves"),
            "candidate: the server ended by itself, exit code 4",
            id="leaves in a launch",
            marks=pytest.mark.ci,
        ),
        pytest.param(
            ("honest", "endless"), "candidate: does not end its answer within", id="endless", marks=pytest.mark.ci
        ),
        pytest.param(("loud", "refuses"), "candidate: answers 400: ", id="loud", marks=pytest.mark.ci),
    ],
)
def test_a_server_that_misbehaves_is_named_with_what_it_printed(executor, tmp_path, modes, says):
    execution = asked(Jobs(executor, tmp_path), modes, tmp_path)
    assert (execution.ok, execution.program_exit) == (True, 1)
    log = execution.log.decode()
    assert says in log
    assert "printed last: " in log
    assert len(log) < 10_000
    assert living(str(tmp_path)) == []


def test_a_supervisor_that_is_killed_while_servers_load_leaves_nobody_who_waits_for_them(executor, tmp_path):
    jobs, killed = Jobs(executor, tmp_path), []

    def stop() -> None:
        if jobs.started and not killed and any(asker().name in line for line in living(str(tmp_path))):
            killed.append(jobs.started[-1][0])
            os.kill(killed[0], signal.SIGKILL)

    execution = asked(jobs, ("loading", "loading"), tmp_path, stop=stop)
    assert (execution.ok, execution.ending) == (False, "killed")
    # The asker would go on to ask for five minutes.
    until(lambda: living(str(tmp_path)) == [], patience_s=60.0, why=lambda: f"there is {living(str(tmp_path))}")


def test_an_asker_that_cannot_be_started_ends_its_launch_at_once(executor, tmp_path):
    """The servers wait for its word, without a sign of life."""
    nowhere = str(tmp_path / "no-python")
    execution = asked(Jobs(executor, tmp_path), ("honest", "honest"), tmp_path, asker_python=nowhere)
    assert (execution.ok, execution.ending, execution.program_exit) == (True, "exited", 1)
    (launch,) = execution.launches
    assert launch.cut is not None
    assert launch.cut.startswith(f"cannot start {nowhere!r}: ")
    assert "no-python': No such file or directory" in execution.log.decode()
    assert living(str(tmp_path)) == []


@pytest.mark.ci
def test_servers_that_are_asked_for_longer_than_a_run_may_be_silent_are_measured_to_the_end(executor, tmp_path):
    """Neither they nor who asks them prints anything meanwhile."""
    execution = asked(Jobs(executor, tmp_path), ("honest 50", "honest 50"), tmp_path, inactivity_s=4.0)
    assert (execution.ending, execution.program_exit) == ("exited", 0), execution.message
    assert min(launch.ended_s - launch.ready_s for launch in execution.launches) > 4.0


def test_who_is_never_ready_or_speaks_no_http_is_one_line(tmp_path):
    """A port that another program holds and says nothing at, a server that still loads, and a port of nobody."""
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as free:
        places = {"silent": silent.getsockname()[1], "nobody": free.getsockname()[1]}
        free.close()
        loading = guarded.start([sys.executable, SERVER, "loading", str(places["nobody"])])
        try:
            until(lambda: listens(places["nobody"]), why="it does not listen")
            for port, why in ((places["silent"], "timed out"), (places["nobody"], "it answers 503"), (1, "refused")):
                server = ask_servers.Server("candidate", {"model": "m", "ready": "/health"}, ("127.0.0.1", port), 4)
                with pytest.raises(ask_servers.AskedServerError) as refused:
                    server.wait_until_ready(patience_s=1.0)
                assert str(refused.value).startswith("candidate: does not answer /health with 200 within 1 s: ")
                assert why in str(refused.value)
        finally:
            guarded.stop(loading)


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("fails", 'ends its answer with an error: {"message": "out of memory"}'),
        ("breaks", "breaks off its answer: the stream ended before data: [DONE]"),
    ],
)
def test_an_answer_that_ends_in_an_error_or_before_its_end_is_not_taken_for_a_short_one(mode, why):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = guarded.start([sys.executable, SERVER, mode, str(port)])
    try:
        server = ask_servers.Server("candidate", {"model": "m"}, ("127.0.0.1", port), 4)
        server.wait_until_ready(patience_s=60.0)
        answer = server.ask("# salt\nfirst prompt")
    finally:
        guarded.stop(process)
    assert (answer["error"], len(answer["text"])) == (why, 4)


@pytest.mark.ci
def test_counting_the_tokens_of_answers_is_in_no_turn(executor, tmp_path):
    """Of many requests at once it takes a part of the time that a fast server answers them in."""
    program = tmp_path / "counts_slowly.py"
    program.write_text(COUNTS_SLOWLY.format(program=str(asker()), seconds=COUNTING_S))
    execution = asked(Jobs(executor, tmp_path), ("honest", "honest"), tmp_path, tokenizer=True, program=program)
    assert execution.program_exit == 0, execution.log
    turns = [turn for launch in execution.launches for turn in launch.turns]
    assert {turn.tokens for turn in turns} == {12}
    # Of a text and of its beginning: a busy machine may hold a turn up, counting would be in each of them.
    assert statistics.median(turn.done_s - turn.go_s for turn in turns) < 2 * COUNTING_S
    assert statistics.median(turn.wall_s for turn in served_of(evidence_of(execution)[0]).turns) < 2 * COUNTING_S


def test_answers_of_unlike_length_are_in_no_ratio(executor, tmp_path):
    execution = asked(Jobs(executor, tmp_path), ("honest", "brief"), tmp_path)
    assert execution.program_exit == 0
    assert not any(turn.over for launch in execution.launches for turn in launch.turns)
    assert {log_ratio(series_of(2), launch) for launch in execution.launches} == {None}
    assert served_of(evidence_of(execution)[0]).unlike == (8, 8)


def test_one_server_is_asked_alone(executor, tmp_path):
    execution = asked(Jobs(executor, tmp_path), ("honest",), tmp_path, sides=ALONE)
    assert execution.program_exit == 0, execution.log
    served = served_of(evidence_of(execution)[0])
    assert {answer.arm for answer in served.timed} == set(ARMS)  # both arms are this server
    assert all(set(turn.cpu_s) == {"baseline", "neither"} for turn in served.turns)


def test_a_server_that_runs_is_asked_where_it_listens(executor, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    endpoint = f'[servers.candidate]\nendpoint = "http://127.0.0.1:{port}"\nmodel = "m"'
    server = guarded.start([sys.executable, SERVER, "honest", str(port)])
    try:
        execution = asked(Jobs(executor, tmp_path), (), tmp_path, sides=endpoint)
        assert server.poll() is None  # it is nobody's to end
    finally:
        guarded.stop(server)
    assert execution.program_exit == 0, execution.log
    served = served_of(evidence_of(execution)[0])
    assert len(served.timed) == 16
    assert {tuple(turn.cpu_s) for turn in served.turns} == {()}
    assert found(require_idle_servers, execution) == ["nobody read which server was on a processor in whose turns"]


@pytest.fixture(scope="module")
def cheats(tmp_path_factory):
    """Runs of servers that cheat, each once."""
    runs = {}

    def run(*modes: str, **more):
        key = (modes, *sorted(more))
        if key not in runs:
            top = tmp_path_factory.mktemp("cheat")
            top.chmod(0o755)
            runs[key] = asked(Jobs(LocalExecutor(SystemClock()), top), modes, top, launches=ENOUGH, **more)
            assert runs[key].program_exit == 0, runs[key].log
        return runs[key]

    return run


@pytest.mark.ci
def test_two_copies_lose_no_premise(cheats):
    execution = cheats("honest 25", "honest 25")
    for rule in (require_idle_servers, recount_served_answers, compare_prompts_nobody_knew):
        assert found(rule, execution) == []


@pytest.mark.ci
@pytest.mark.parametrize(
    ("candidate", "rule", "says"),
    [
        ("listed 25", compare_prompts_nobody_knew, "pinned prompts against those that nobody could know: the time is"),
        ("caching 25", compare_prompts_nobody_knew, "candidate asked again behind another line: the time is 0."),
        ("burning 25", require_idle_servers, "candidate took "),
        ("hidden 25", require_idle_servers, "processes of neither server took "),
        ("wordy", recount_served_answers, "candidate states 480 tokens for 48 bytes of text"),
        ("short", recount_served_answers, "as many stated tokens candidate's text is 0.50 to 0.50 times as long"),
        ("guessing", recount_served_answers, "prompts are answered with the same first text"),
        ("streamed", recount_served_answers, "candidate begins otherwise without streaming"),
        ("another", recount_served_answers, "prompts are answered with the same first text"),
    ],
)
def test_a_server_that_cheats_loses_a_premise(cheats, candidate, rule, says):
    _, *token_ms = candidate.split()
    messages = found(rule, cheats(" ".join(["honest", *token_ms]), candidate))
    assert [message for message in messages if says in message], messages


@pytest.mark.ci
@pytest.mark.parametrize(
    ("candidate", "says"),
    [
        ("honest", None),
        ("padded", "candidate puts 6 end tokens into an answer"),
        ("generous", "candidate states 336 tokens in all for texts of 288"),
    ],
)
def test_with_a_tokenizer_an_answer_ends_once_and_has_the_tokens_that_are_stated(cheats, candidate, says):
    messages = found(recount_served_answers, cheats("honest", candidate, tokenizer=True))
    assert [message for message in messages if says is None or says in message] == messages, messages
    assert bool(messages) is (says is not None)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("mode", "rule", "says"),
    [
        ("honest 25", recount_served_answers, None),
        ("honest 25", compare_prompts_nobody_knew, None),
        ("prophet 25", compare_prompts_nobody_knew, "pinned prompts take 0."),
        ("guessing", recount_served_answers, "0 of 30 answers of baseline begin as the host's own target does"),
    ],
)
def test_the_host_s_own_target_makes_the_prompts_that_nobody_could_know_and_says_how_answers_begin(
    cheats, mode, rule, says
):
    target = (sys.executable, "-I", "-S", str(SERVER))
    messages = found(rule, cheats(mode, sides=ALONE, target=target), ARMS[:1])
    assert [message for message in messages if says is not None and says in message] == messages[:1], messages
    assert bool(messages) is (says is not None), messages


@pytest.mark.ci
def test_a_server_alone_that_makes_its_own_prompts_may_prepare_them(cheats):
    """What a target of the host's is for: of two servers nobody knows which one makes a prompt, here all know."""
    assert found(compare_prompts_nobody_knew, cheats("prophet 25", sides=ALONE), ARMS[:1]) == []
    listed = found(compare_prompts_nobody_knew, cheats("listed 25", sides=ALONE), ARMS[:1])
    assert listed[0].startswith("pinned prompts take 0."), listed


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (("/no/such/engine",), "the host's own target: /no/such/engine: No such file or directory"),
        ((sys.executable, "-c", "raise SystemExit('no model here')"), "the host's own target: no model here"),
        ((sys.executable, "-c", "input(); print('hello')"), "the host's own target: hello"),
    ],
    ids=["missing", "ends", "answers otherwise"],
)
def test_a_target_that_cannot_answer_is_one_line(executor, tmp_path, target, says):
    execution = asked(Jobs(executor, tmp_path), ("honest", "honest"), tmp_path, target=target)
    assert execution.program_exit == 1
    assert says in execution.log.decode()
    assert living(str(tmp_path)) == []
