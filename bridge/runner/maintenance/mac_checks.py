"""Check what keeps a Mac in a cupboard from serving: sleep, restarts nobody expects, a disk that waits for a password.

Reads what fdesetup(8), pmset(1) and defaults(1) print, as their manual pages document it; what is not of that form is
said, never taken for fine. Untested on a Mac; its tests hold samples of this form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from bridge.diagnostics import Check
from bridge.runner.policy.model import Policy

Tool = Callable[..., str]
"""Runs a program of the system with its arguments and returns what it prints, nothing where it cannot."""
_UPDATES: Final = ("/Library/Preferences/com.apple.SoftwareUpdate", "AutomaticallyInstallMacOSUpdates")
_PRIVATE: Final = ("Desktop", "Documents", "Downloads", "Library/Mobile Documents", "Library/CloudStorage")


def check_mac(tool: Tool) -> Iterator[Check]:
    """Yield what stands in the way of a Mac that nobody looks after.

    Args:
        tool: runs a program of the system.
    """
    settings = tool("/usr/bin/pmset", "-g")
    yield _file_vault(tool("/usr/bin/fdesetup", "status"))
    yield _restart(settings)
    yield _updates(tool("/usr/bin/defaults", "read", *_UPDATES))
    yield _awake(settings, tool("/usr/bin/pmset", "-g", "assertions"), tool("/usr/bin/pmset", "-g", "batt"))


def check_interpreter(interpreter: Path) -> Iterator[Check]:
    """Yield whether an upgrade of its Python takes the environment of an interpreter away.

    Package managers keep each release in a folder of its own, which the next upgrade removes (uv issue 1640).

    Args:
        interpreter: of the policy; an environment's says in pyvenv.cfg which Python it was made with.
    """
    try:
        settings = (interpreter.parent.parent / "pyvenv.cfg").read_text("utf-8", "replace")
    except OSError:
        settings = f"home = {interpreter.parent}"
    home = re.search(r"^home *= *(.+?) *$", settings, re.MULTILINE)
    if home is not None and re.search(r"/Cellar/[^/]+/[^/]+/|/uv/python/cpython-\d+\.\d+\.\d+", f"{home[1]}/"):
        yield Check(
            "interpreter",
            "warn",
            f"{interpreter} was made with {home[1]}, which the next upgrade of that Python removes",
            "runner-setup/setup_mac.sh with your options: it pins the name that stays",
        )


def _file_vault(text: str) -> Check:
    """Read `fdesetup status`."""
    match = re.search(r"^FileVault is (On|Off)\b", text, re.MULTILINE)
    if match is None:
        return _unread("filevault", "fdesetup status")
    if match[1] == "Off":
        return Check("filevault", "ok", "off: the Mac starts without anybody's password")
    return Check(
        "filevault", "warn", "on: after a restart the Mac waits for a password before anything starts",
        "before a restart you plan: sudo fdesetup authrestart; to serve after any restart: sudo fdesetup disable",
    )  # fmt: skip


def _restart(settings: str) -> Check:
    """Read `autorestart` of `pmset -g`; a Mac with a battery has no such setting."""
    value = _setting(settings, "autorestart")
    if value == "1":
        return Check("restart", "ok", "starts again after a power failure")
    if value is None and settings:
        return Check("restart", "ok", "this Mac has no setting for power failures")
    if value is None:
        return _unread("restart", "pmset -g")
    return Check("restart", "warn", "the Mac stays off after a power failure", "sudo pmset -a autorestart 1")


def _updates(text: str) -> Check:
    """Read the preference that installs macOS updates, and restarts, by itself."""
    value = text.strip()
    if value == "0":
        return Check("updates", "ok", "macOS installs no update, and restarts for none, by itself")
    said = "macOS installs updates and restarts by itself" if value == "1" else "macOS may restart by itself to update"
    write = f"sudo defaults write {_UPDATES[0]} {_UPDATES[1]} -bool false"
    return Check("updates", "warn", f"{said}: a run would end as interrupted", write)


def _awake(settings: str, assertions: str, battery: str) -> Check:
    """Read whether something keeps the Mac awake: `caffeinate -s` does on mains only (caffeinate(8))."""
    if "drawing from 'Battery Power'" in battery:
        return Check("awake", "warn", "on battery, where caffeinate -s does not keep the Mac awake", "plug it in")
    if _setting(settings, "sleep") == "0" or re.search(r"^\s*PreventSystemSleep\s+1\s*$", assertions, re.MULTILINE):
        return Check("awake", "ok", "kept awake on mains")
    return Check(
        "awake", "warn", "nothing keeps this Mac awake: it may sleep in mid-run",
        "start the service of runner-setup/setup_mac.sh, which runs below caffeinate -is; or: sudo pmset -c sleep 0",
    )  # fmt: skip


def _setting(text: str, name: str) -> str | None:
    match = re.search(rf"^\s*{name}\s+(\d+)\b", text, re.MULTILINE)
    return None if match is None else match[1]


def _unread(name: str, command: str) -> Check:
    return Check(name, "warn", f"`{command}` did not say", f"look yourself: {command}")


def check_folders(policy: Policy, state: Path, home: Path) -> Iterator[Check]:
    """Yield the folders of a runner that macOS opens to nobody whom it cannot ask.

    Desktop, Documents, Downloads, iCloud and other volumes are behind a prompt of the system's privacy settings (TCC),
    which a daemon never sees: it is refused.

    Args:
        policy: whose folders are meant.
        state: the runner's state folder.
        home: of the runner's user.
    """
    named = {
        "state": str(state), "workloads": policy.workloads, "presets.folder": policy.presets.folder,
        "target": policy.target, "drafter": policy.drafter,
    } | {f"model_roots[{place}]": path for place, path in enumerate(policy.model_roots)} | {
        f"sandbox.read_only[{place}]": path for place, path in enumerate(policy.sandbox.read_only)
    }  # fmt: skip
    for name, path in named.items():
        if path is not None and (what := _prompted(path, home)) is not None:
            yield Check(
                "privacy", "warn", f"{name}: {path} is {what}, which macOS asks a person about: a daemon is refused",
                "move it to /usr/local/var/kakeya or /Users/Shared, or allow the Python of the runner Full Disk Access",
            )  # fmt: skip


def _prompted(path: str, home: Path) -> str | None:
    where = PurePosixPath(path)
    for name in _PRIVATE:
        if where.is_relative_to(home / name):
            return f"in {name}"
    return "on another volume" if where.is_relative_to("/Volumes") else None
