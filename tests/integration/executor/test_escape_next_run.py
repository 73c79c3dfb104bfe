"""Nothing a run leaves is there for the next one: caches, byte code, planted modules, processes, locks."""

from __future__ import annotations

import json
import sys

import pytest

from tests.fakes.local_jobs import living

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are ways out of a Linux sandbox")

CACHES = (
    "~/.cache/huggingface/hub/models--a--b/snapshots/1/config.json",
    "~/.cache/pip/http/poison",
    "~/.local/lib/python3.11/site-packages/usercustomize.py",
    "~/.config/pip/pip.conf",
    "~/.pypirc",
    "~/.gitconfig",
    "~/.cache/torch/kernels/poison",
    "~/.triton/cache/poison",
    "$TMPDIR/poison",
    "/tmp/poison",
    "/dev/shm/poison",
    "/var/tmp/poison",
    "$KAKEYA_OUT/poison.json",
    "engine/__init__.py",
)


def test_a_cache_of_one_run_is_no_cache_of_the_next(caged, token):
    paths = f"paths = [os.path.expandvars(os.path.expanduser(path)) for path in {CACHES!r}]"
    poisoned = caged.run(
        f"""
import json, os
{paths}
done = 0
for path in paths:
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        open(path, "w").write("poison")
        done += 1
    except OSError:
        pass
print(done)  # {token}
"""
    )
    assert int(poisoned.log) >= len(CACHES) - 1
    execution = caged.run(f"import json, os\n{paths}\nprint(json.dumps([p for p in paths if os.path.exists(p)]))")

    assert json.loads(execution.log) == []


def test_byte_code_of_what_every_run_imports_cannot_be_replaced(caged, token):
    """A planted `__pycache__` entry would run in every later process of the host."""
    execution = caged.run(
        f"""
import encodings, json, os, sys, sysconfig
folders = {{os.path.dirname(module.__file__) for module in (json, os, encodings)}}
folders |= {{sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "scripts")}} | {{sys.prefix}}
got = []
for folder in sorted(folders):
    for place in (folder, folder + "/__pycache__"):
        for name in ("planted.py", "planted.pth", "sitecustomize.py"):
            try:
                open(place + "/" + name, "x").close()
                got.append(place + "/" + name)
            except OSError:
                pass
print(json.dumps(got))  # {token}
"""
    )

    assert json.loads(execution.log) == []


def test_a_process_that_would_outlive_its_run_does_not_meet_the_next(caged, token):
    stay = f"""
import os, signal, sys, time
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            for descriptor in range(256):
                try: os.close(descriptor)
                except OSError: pass
            time.sleep(600)
        os._exit(0)
# {token}
"""
    first = caged.run(stay)

    assert [command.survivors for command in first.commands] == [0]
    assert living(token) == []
    second = caged.run("import os\nprint(sorted(int(name) for name in os.listdir('/proc') if name.isdigit()))")
    assert second.log == b"[1, 2]\n"


def test_host_code_takes_nothing_from_where_it_is_started(jobs, token):
    """`python -I`: neither modules of the checkout nor variables nor a user's site folder."""
    trap = f"raise SystemExit('trapped {token}')"
    names = (
        "json/tool.py",
        "argparse.py",
        "sitecustomize.py",
        "usercustomize.py",
        "encodings/idna.py",
        "engine/cli.py",
    )

    def prepare(directory):
        for folder in (directory.work, directory.home / f".local/lib/python3.{sys.version_info[1]}/site-packages"):
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(trap)
            (folder / "json/__init__.py").write_text(trap)
            (folder / "planted.pth").write_text(f"import sys; {trap}\n")

    execution = jobs.run(argv=[(sys.executable, "-I", "-m", "json.tool", "--help")], prepare=prepare)

    assert execution.program_exit == 0, execution.log
    assert b"trapped" not in execution.log
    assert b"usage" in execution.log
