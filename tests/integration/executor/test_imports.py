"""Where the workload's package came from is asked of the same interpreter in the same confinement, before it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bridge.executor.sandbox.interpreter import answer, question
from bridge.records.jobspec import Command

PACKAGE = "print('ran', __name__)\n"


def put(files: dict[str, str]):
    """Return a preparation that writes these files below the run's work folder."""

    def prepare(directory):
        for name, text in files.items():
            path = directory.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return prepare


def command(*flags: str, module: str = "workload.main"):
    return [(sys.executable, *flags, "-m", module, "--flag", "value")]


TREE = {"workload/__init__.py": "", "workload/main.py": PACKAGE}


def test_code_in_the_work_folder_is_found_there(jobs):
    execution = jobs.run(argv=command("-s"), prepare=put(TREE), code="request")

    assert execution.program_exit == 0, execution.log
    assert execution.log == b"ran __main__\n"
    work = str(jobs.directory.work)
    assert (execution.imported.module, execution.imported.work) == ("workload", work)
    assert execution.imported.path == f"{work}/workload/__init__.py"
    assert len(execution.commands) == 1


def test_an_isolated_interpreter_does_not_find_what_lies_in_the_work_folder(jobs):
    """`python -I`: host code never imports the checkout, whatever lies there."""
    poison = {"json.py": "raise SystemExit('poisoned')", "bridge/__init__.py": "raise SystemExit('poisoned')"}
    execution = jobs.run(argv=command("-I", module="json.tool"), prepare=put(poison))

    assert execution.imported.path != f"{execution.imported.work}/json.py"
    assert Path(execution.imported.path).name == "__init__.py"
    assert b"poisoned" not in execution.log


def test_nothing_of_the_tree_runs_while_it_is_asked(jobs):
    """Modules of the tree that carry names of the library's shadow nothing in the question."""
    trap = "import os\nos.write(1, b\"('/fake', '/fake')\\n\")\nos._exit(0)\n"
    names = ("json", "ast", "ascii", "sitecustomize", "usercustomize", "importlib/__init__", "workload/__init__")
    files = {f"{name}.py": trap for name in names} | {"workload/main.py": PACKAGE}
    execution = jobs.run(argv=command("-s"), prepare=put(files), code="request")

    assert execution.imported.path == f"{execution.imported.work}/workload/__init__.py"


def test_a_link_out_of_the_tree_is_followed_and_seen(plain, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "__init__.py").write_text("")
    (elsewhere / "main.py").write_text(PACKAGE)
    link = lambda directory: (directory.work / "workload").symlink_to(elsewhere)  # noqa: E731 (one line)
    given = plain.sandbox(read_only=(str(elsewhere),))  # a user of its own does not get there by itself
    execution = plain.run(argv=command("-s"), prepare=link, sandbox=given)

    assert execution.imported.path == f"{elsewhere.resolve()}/__init__.py"


def test_a_module_that_is_not_there_has_no_place(jobs):
    execution = jobs.run(argv=command("-s", module="no_such_module"))

    assert execution.imported is None
    assert execution.program_exit == 1


def test_a_program_that_runs_no_module_is_not_asked(jobs):
    execution = jobs.run("print('a program')")

    assert execution.imported is None
    assert execution.log == b"a program\n"
    assert len(jobs.started) == 1


def test_a_stop_while_it_is_asked_starts_nothing(jobs):
    execution = jobs.run(argv=command("-s"), prepare=put(TREE), stop=lambda: "cancelled")

    assert execution.ending == "cancelled"
    assert b"ran" not in execution.log


@pytest.mark.parametrize(
    "argv",
    [
        ("/usr/bin/python3", "-c", "pass", "-m", "engine"),
        ("/usr/bin/python3", "script.py", "-m", "engine"),
        ("/usr/bin/python3", "-I", "-m"),
        ("/usr/bin/tool",),
    ],
)
def test_only_a_module_is_asked_for(argv):
    assert question(Command(name="c", argv=argv)) is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nonsense",
        b"None",
        b"(None, '/w')",
        b"('a', 1)",
        b"('/a\\x1b[2J', '/w')",
        b"('/" + b"a" * 2000 + b"', '/w')",
    ],
)
def test_what_is_no_answer_is_nothing(text):
    assert answer("engine", text) is None


def test_only_the_last_line_is_the_answer():
    import_facts = answer("engine", b"a banner of the site\n('/x/engine/__init__.py', '/w')\n")

    assert (import_facts.path, import_facts.work, import_facts.installation) == ("/x/engine/__init__.py", "/w", None)
