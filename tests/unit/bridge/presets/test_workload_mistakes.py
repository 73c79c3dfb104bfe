"""Every mistake of a workload folder is one line with a remedy, before anything of it runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bridge.errors import UsageError
from bridge.presets.workloads import problems, read_folder
from bridge.presets.workloads.reading_program import bring_files
from bridge.runner.policy.workloads import allowed, change_list, offered, write_list
from tests.support.workload_folder import INTERPRETER, edit, write, write_workload

POINTER = 'pointer = "/metrics/final_loss"'
KEEP = '[outputs]\nkeep = ["weights.json"]\n'


def toml(*changes):
    return lambda folder: edit(folder, *changes)


def file(name, text, mode=0o644):
    def put(folder):
        write(folder / name, text)
        (folder / name).chmod(mode)

    return put


SCHEMA = '{"type": "object", "properties": {"loss": {}}, "additionalProperties": false}'
# What is planted, and what its one line has to say.
MISTAKES = {
    "no file": (lambda folder: (folder / "workload.toml").unlink(), "has no workload.toml"),
    "not TOML": (toml(("schema = 1", "schema = = 1")), "workload.toml:1: not TOML"),
    "another schema": (toml(("schema = 1", "schema = 2")), "workload.toml:1 schema"),
    "unknown key": (toml(("better =", "beter =")), "did you mean better?"),
    "unknown table": (toml(("[outputs]", "[output]")), "did you mean outputs?"),
    "another name": (toml(('name = "my-train"', 'name = "mine"')), 'write name = "my-train"'),
    "a name that is none": (toml(('name = "my-train"', 'name = "My Train"')), "lower-case"),
    "unknown aggregate": (toml(("repeats = 6", 'repeats = 6\nclaim = "average"')), "use median, mean"),
    "an aggregate of servers": (toml(("repeats = 6", 'repeats = 6\nclaim = "percentiles"')), "use median, mean"),
    "unknown kind of premise": (toml(("repeats = 6", 'premises = ["trust"]')), "premises"),
    "no unit": (toml(('unit = "nats"\n', "")), "unit is missing"),
    "no pointer": (toml(('pointer = "/metrics/final_loss"\n', "")), "pointer is missing"),
    "a wrong pointer": (toml(('"/metrics/final_loss"', '"metrics.final_loss"')), "is no JSON pointer"),
    "a pointer beside the standard report": (toml(('"/metrics/final_loss"', '"/loss"')), "below /metrics/"),
    "bounds reversed": (toml(("[0, 100]", "[100, 0]")), "[smallest, largest]"),
    "a bound that is not finite": (toml(("[0, 100]", "[0.0, nan]")), "not a finite number"),
    "no repeats": (toml(("repeats = 6", "repeats = 0")), "repeats"),
    "mixed words": (toml(('"--lr", "{lr}"', '"--lr={lr}"')), 'write two words: "--lr", "{lr}"'),
    "an undeclared parameter": (toml(("{steps}", "{epochs}")), "the same parameters"),
    "a default out of bounds": (toml(("default = 0.1", "default = 7.0")), "0.01 to 1.0"),
    "a default that begins with -": (
        toml(("min = 0.01, max = 1.0, default = 0.1", "min = -1.0, max = 1.0, default = -0.5")),
        "next: write allow_dash = true",
    ),
    "a pattern of a text that is none": (
        toml(('type = "float", min = 0.01, max = 1.0, default = 0.1', 'type = "text", pattern = "[a-z"')),
        "pattern '[a-z' is none: unterminated character set at position 0 next: write a regular expression",
    ),
    "an unknown type": (toml(('type = "int"', 'type = "integer"')), "use int, float, choice"),
    "a parameter without a type": (
        toml(('type = "float", ', "")),
        "presets.my-train.params.lr.type is missing next: use int, float, choice",
    ),
    "a parameter that is called as a type is": (
        toml(("params.steps =", "params.path ="), (', help = "steps"', "")),
        "presets.my-train.params.path.help is missing next: add help = ...",
    ),
    "a metric that is called as a validator is": (
        toml(("[metrics.final_loss]", "[metrics.function_calls]"), ("better =", "beter =")),
        "metrics.function_calls.beter: unknown key next: did you mean better?",
    ),
    "a metric in capitals": (
        toml(("[metrics.final_loss]", "[metrics.F1]")),
        'got "F1" next: use at most 63 lower-case letters, digits, - . _',
    ),
    "an input without a path": (
        toml((KEEP, f'[inputs]\ndata = {{ sha256 = "{"0" * 64}" }}\n')),
        "inputs.data.path is missing next: add path = ...",
    ),
    "a program that is not there": (toml(('["train.py"', '["trian.py"')), "did you mean train.py?"),
    "argv not identified": (toml(('["train.py"', '["../train.py"')), "outside of the folder"),
    "a program that a request chooses": (toml(('["train.py"', '["{lr}"')), "which a request would choose"),
    "a program that may not run": (
        lambda folder: (file("run", "\x7fELF\0")(folder), edit(folder, ('["train.py"', '["run"'))),
        "chmod +x",
    ),
    "a script of what is not installed": (
        lambda folder: (file("run", "#!/usr/bin/env nosuchplot\n")(folder), edit(folder, ('["train.py"', '["run"'))),
        "is a script of nosuchplot, which is not installed",
    ),
    "two places of one number": (
        toml(('pointer = "/metrics/final_loss"', 'pointer = "/metrics/final_loss"\nnumber = { pointer = "/x" }')),
        "two places of one number",
    ),
    "a number in no place": (toml((POINTER, 'number = { file = "log.csv" }')), "with one of pattern, pointer"),
    "a pattern that is none": (toml((POINTER, 'number = { stdout = "loss: ([0-9" }')), "pattern 'loss: ([0-9' is none"),
    "a pattern without a group": (toml((POINTER, 'number = { stdout = "loss: [0-9.]+" }')), "has 0 groups"),
    "a pointer that is none": (toml((POINTER, 'number = { pointer = "a.b" }')), "is no JSON pointer"),
    "a number and a schema": (
        lambda folder: (
            file("report.schema.json", '{"type": "object"}')(folder),
            edit(folder, (POINTER, 'number = { pointer = "/x" }')),
        ),
        "delete report.schema.json",
    ),
    "a seed for a program that reports": (toml(('"{lr}"', '"{lr}", "--seed", "{seed}"')), "hands out {seed}"),
    "the report among the kept files": (toml(("weights.json", "report.json")), "which is the report itself"),
    "nothing is left": (
        lambda folder: write(
            folder / "workload.toml",
            'schema = 1\nname = "my-train"\n[presets.my-train]\ndescription = "x"\nargv = ["train.py"]\n',
        ),
        "it leaves nothing",
    ),
    "no interpreter": (toml((INTERPRETER, "/nowhere/python3")), "cannot be run"),
    "a relative interpreter": (toml((INTERPRETER, "python3")), "no absolute path"),
    "an environment that is not there": (toml((f'interpreter = "{INTERPRETER}"', 'venv = ".venv"')), "cannot be run"),
    "two environments": (toml(("[environment]", '[environment]\nbinary = "x"')), "name one of"),
    "a reserved variable": (
        toml(("[presets.", '[environment.variables]\nKAKEYA_SEED = "1"\n[presets.')),
        "runner sets",
    ),
    "a home of its own": (
        toml(("[presets.", '[environment.variables]\nHOME = "/data"\n[presets.')),
        "the runner sets HOME next: use another name",
    ),
    "missing seed": (lambda folder: write(folder / "train.py", "print(1)\n"), "reads KAKEYA_SEED"),
    "world-writable folder": (lambda folder: folder.chmod(0o777), "chmod go-w"),
    "world-writable program": (lambda folder: (folder / "train.py").chmod(0o666), "chmod go-w"),
    "a hidden file": (file(".env", "KEY=1\n"), "a hidden file"),
    "a hidden folder": (lambda folder: (folder / ".DS_Store").mkdir(), "a hidden file"),
    "a program that no digest would have": (
        lambda folder: (file(".train.py.swp", "print(1)\n")(folder), edit(folder, ('["train.py"', '[".train.py.swp"'))),
        "next: give it another name",
    ),
    "a credential": (file("id_rsa", "secret\n"), "credential"),
    "a link out of it": (lambda folder: (folder / "data").symlink_to("/etc"), "outside of the folder"),
    "an absent input": (
        toml((KEEP, f'[inputs]\ndata = {{ path = "d.bin", sha256 = "{"0" * 64}" }}\n')),
        "input 'd.bin' is not there",
    ),
    "another input": (
        toml((KEEP, f'[inputs]\ndata = {{ path = "train.py", sha256 = "{"0" * 64}" }}\n')),
        "not the pinned one",
    ),
    "a digest that is none": (toml((KEEP, '[inputs]\ndata = { path = "d", sha256 = "abc" }\n')), "sha256sum"),
    "a schema that is not JSON": (file("report.schema.json", "{]"), "report.schema.json:1"),
    "a bad schema": (file("report.schema.json", '{"type": "objekt"}'), "no JSON Schema 2020-12"),
    "a schema that refers elsewhere": (file("report.schema.json", '{"$ref": "http://x/y"}'), "another document"),
    "a pointer the schema forbids": (file("report.schema.json", SCHEMA), "make pointer and schema agree"),
    "recompute is not there": (
        toml((KEEP, KEEP + '[recompute]\nargv = ["r.py"]\nconfirms = { final_loss = "exact" }\n')),
        "r.py",
    ),
    "recompute of nothing": (
        toml((KEEP, '[recompute]\nargv = ["recompute.py"]\nconfirms = { final_loss = "exact" }\n')),
        "there is nothing to compute it from",
    ),
    "recompute of no metric": (
        toml((KEEP, KEEP + '[recompute]\nargv = ["recompute.py"]\nconfirms = { loss = "exact" }\n')),
        "which is no metric",
    ),
    "a way for tokens": (
        toml((KEEP, KEEP + '[recompute]\nargv = ["recompute.py"]\nconfirms = { final_loss = "near" }\n')),
        "which is for tokens",
    ),
    "a taken name": (toml(("[presets.my-train]", "[presets.pytest-path]")), "is there already"),
    "a metric that is not declared": (toml(("limits.wall_s", 'metrics = ["acc"]\nlimits.wall_s')), "not declared"),
    "an empty command": (
        toml(('["train.py", "--lr", "{lr}", "--steps", "{steps}"]', "[]")),
        "next: write the program first",
    ),
    "a network of the whole workload": (
        toml(("[presets.", '[sandbox]\nnetwork = ["x.org"]\n[presets.')),
        "sandbox: unknown key next: write presets.NAME.sandbox",
    ),
    "a file above the folder": (
        toml((POINTER, 'number = { file = "../log.csv", column = "loss" }')),
        'expected a file below the folder that the program runs in; got "../log.csv" next: write its name',
    ),
    "a kept file above the folder": (toml(("weights.json", "../w.png")), "below the folder that the program runs in"),
    "a number twice over": (
        toml((POINTER, 'number = { file = "m.json", column = "a", pointer = "/a" }')),
        "with one of pattern, pointer and column next: write e.g. number =",
    ),
    "a time with its unit": (toml(("wall_s = 120.0", 'wall_s = "10m"')), "next: write seconds, as in: limits.wall_s"),
    "repeats that are none": (toml(("repeats = 6", "repeats = 0")), "next: write e.g. repeats = 6"),
    "bounds without a width": (toml(("[0, 100]", "[100, 0]")), "next: write the smallest and the largest"),
    "a least that is above the most": (toml(("min = 0.01", "min = 7.0")), "next: write min, max, and a default"),
    "no time": (toml(("wall_s = 120.0", "wall_s = 0.0")), "wall_s"),
    "two programs without one": (
        toml(("repeats = 6", 'ratio = { baseline = ["train.py"] }')),
        "baseline and candidate",
    ),
}


def test_the_folder_without_a_mistake_is_fine(tmp_path):
    folder = write_workload(tmp_path, recompute=True)
    assert list(problems(folder, INTERPRETER)) == []


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_one_line_with_a_remedy(tmp_path, mistake):
    plant, message = MISTAKES[mistake]
    folder = write_workload(tmp_path)
    plant(folder)
    failed = [check for check in problems(folder, INTERPRETER) if check.level == "fail"]
    assert failed
    lines = [f"{check.name}: {check.text} next: {check.remedy}".replace(": schema", " schema") for check in failed]
    assert any(message in line for line in lines), lines
    assert all(check.remedy and "\n" not in check.text + check.remedy for check in failed)


def test_a_range_whose_negative_numbers_would_be_refused_is_told(tmp_path):
    folder = write_workload(tmp_path)
    edit(folder, ("min = 1, max = 100", "min = -100, max = 100"))
    [check] = problems(folder, INTERPRETER)
    assert check.level == "warn"
    assert check.text.startswith("presets.my-train.params.steps: min is -100, and a value that begins with - is")
    edit(folder, ("min = -100, max = 100", "min = -100, max = 100, allow_dash = true"))
    assert list(problems(folder, INTERPRETER)) == []


def test_a_file_that_an_editor_begins_with_a_byte_order_mark_is_fine(tmp_path):
    folder = write_workload(tmp_path)
    write(folder / "workload.toml", f"\ufeff{(folder / 'workload.toml').read_text()}")
    assert list(problems(folder, INTERPRETER)) == []
    assert set(read_folder(folder, INTERPRETER).presets) == {"my-train"}


def test_files_that_are_too_many_for_a_result_are_told(tmp_path):
    folder = write_workload(tmp_path)
    nine = ", ".join(f'"w{number}.json"' for number in range(9))
    edit(folder, ('keep = ["weights.json"]', f"keep = [{nine}]"))
    assert list(problems(folder, INTERPRETER)) == []
    edit(folder, (f"keep = [{nine}]", f'keep = [{nine}, "ten.json"]'))
    [check] = problems(folder, INTERPRETER)
    assert check.level == "warn"
    assert "6 repeats may leave 66 files, reports included; of more than 64 a run is rejected" in check.text
    assert check.remedy == "keep at most 9 files, e.g. one archive of them"


def test_a_program_elsewhere_may_be_what_reads_the_seed(tmp_path):
    folder, tools = write_workload(tmp_path), tmp_path / "tools"
    tools.mkdir(mode=0o755)
    (folder / "train.py").rename(tools / "train.py")
    edit(folder, ('["train.py"', f'["{tools}/train.py"'))
    assert list(problems(folder, INTERPRETER)) == []
    write(tools / "train.py", "print(1)\n")
    [check] = problems(folder, INTERPRETER)
    assert "reads KAKEYA_SEED: all repeats are equal" in check.text


def test_a_runner_refuses_what_the_check_refuses(tmp_path):
    folder = write_workload(tmp_path / "w")
    listing = tmp_path / "workloads"
    write_list(listing, [folder])
    assert set(offered(listing, INTERPRETER, ())) == {"my-train"}
    (folder / "train.py").chmod(0o666)
    with pytest.raises(UsageError, match="others may change it"):
        offered(listing, INTERPRETER, ())


def test_a_digest_follows_what_is_in_the_files(tmp_path):
    folder = write_workload(tmp_path)
    first = read_folder(folder, INTERPRETER).presets["my-train"].workload
    compiled = folder / "__pycache__"
    compiled.mkdir()
    write(compiled / "train.pyc", "compiled")
    assert read_folder(folder, INTERPRETER).presets["my-train"].workload == first
    write(folder / "train.py", (folder / "train.py").read_text() + "\n")
    assert read_folder(folder, INTERPRETER).presets["my-train"].workload.digest != first.digest


def test_of_several_folders_that_are_taken_off_the_list_at_once_none_stays(tmp_path):
    tmp_path.chmod(0o700)
    listing = tmp_path / "workloads"
    folders = [Path(f"/srv/work{number}") for number in range(16)]
    write_list(listing, folders)

    def remove(gone):
        change_list(listing, lambda offered_now: [folder for folder in offered_now if folder != gone])

    with ThreadPoolExecutor(len(folders)) as pool:
        list(pool.map(remove, folders))
    assert allowed(listing) == ()


@pytest.mark.parametrize(
    "name", [".DS_Store", "._train.py", "Thumbs.db", "desktop.ini", ".train.py.swp", ".train.py.swo", "#train.py#"]
)
def test_what_file_managers_and_editors_leave_is_no_part_of_a_workload(tmp_path, name):
    folder = write_workload(tmp_path / "mine")
    (folder / "data").mkdir()
    (folder / "data").chmod(0o755)
    write(folder / "data" / "rows.csv", "1\n")
    first = read_folder(folder, INTERPRETER).presets["my-train"].workload
    for place in (folder, folder / "data"):
        (place / name).write_text("left")
        (place / name).chmod(0o600)
    assert list(problems(folder, INTERPRETER)) == []
    assert read_folder(folder, INTERPRETER).presets["my-train"].workload == first
    bring_files(folder, tmp_path / "work")
    brought = {str(path.relative_to(tmp_path / "work")) for path in (tmp_path / "work").rglob("*") if path.is_file()}
    assert brought == {"train.py", "recompute.py", "data/rows.csv"}


def test_the_lock_of_a_file_that_is_edited_in_emacs_is_no_part_of_a_workload(tmp_path):
    folder = write_workload(tmp_path)
    (folder / ".#train.py").symlink_to("ada@desk.4711:1764547200")  # which leads nowhere
    assert list(problems(folder, INTERPRETER)) == []
    assert set(read_folder(folder, INTERPRETER).presets) == {"my-train"}


def test_the_list_of_folders_may_be_changed_by_its_owner_alone(tmp_path):
    listing = tmp_path / "workloads"
    write_list(listing, [Path("/srv/mine")])
    listing.chmod(0o666)
    with pytest.raises(UsageError, match="others may change it"):
        offered(listing, INTERPRETER, ())
