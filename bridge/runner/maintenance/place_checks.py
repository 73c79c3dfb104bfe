"""Check what a place does not give: user namespaces, cards for slots, a fitting CUDA, packages as they were installed.

Pure but for `this_place`, which looks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.diagnostics import Check
from bridge.executor.observe.accelerators.cards import Card
from bridge.executor.sandbox.bubblewrap import INSTALL
from bridge.executor.sandbox.user import JOB_UID, closed_to, may_mount
from bridge.gate.facts.cuda import driver_cuda, older_driver, wheel_cuda
from bridge.runner.machine.packages import added_files

APPARMOR: Final = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
PROFILE: Final = "/etc/apparmor.d/kakeya-bwrap"
_RESTRICTED: Final = ("setting up uid map: Permission denied", "Failed RTM_NEWADDR: Operation not permitted")
"""What bwrap says where AppArmor lets it make a user namespace and takes its capabilities (Ubuntu 23.10 and later)."""
_CONFINABLE: Final = (
    "for a sandbox start the container with --cap-add SYS_ADMIN --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined, or rent a virtual machine; your own presets run as it is"
)
_NAMED_MOST: Final = 5
_CONTAINERS: Final = ("/.dockerenv", "/run/.containerenv")


@dataclass(frozen=True)
class Place:
    """Where a runner is.

    Attributes:
        restricted: whether AppArmor restricts user namespaces, as the kernel says.
        container: whether this is a container.
        systemd: whether systemd manages it.
        root: whether the runner is root.
        shut: a folder on the way to the interpreter that a run's user cannot pass where nobody may mount, or None.
    """

    restricted: bool = False
    container: bool = False
    systemd: bool = True
    root: bool = False
    shut: str | None = None


def this_place(root: Path = Path("/"), interpreter: str = sys.executable) -> Place:
    """Look at this machine.

    Args:
        root: the folder below which the system's files are.
        interpreter: of the runs.
    """

    def there(path: str) -> bool:
        return (root / path.removeprefix("/")).exists()

    try:
        restricted = (root / str(APPARMOR).removeprefix("/")).read_text("ascii").strip() == "1"
    except (OSError, ValueError):
        restricted = False
    paths = dict.fromkeys((interpreter, os.path.realpath(interpreter)))
    shut = () if os.geteuid() != 0 or may_mount() else closed_to(JOB_UID, paths).values()
    container, systemd = any(map(there, _CONTAINERS)), there("/run/systemd/system")
    return Place(restricted, container, systemd, root=os.geteuid() == 0, shut=next(iter(shut), None))


def why_no_sandbox(reason: str, place: Place) -> tuple[str, str]:
    """Return why bubblewrap confines no run here, and what to do."""
    if "is not installed" in reason:
        return reason, INSTALL
    if place.restricted or any(text in reason for text in _RESTRICTED):
        return (
            f"AppArmor restricts user namespaces here ({reason})",
            f"sudo runner-setup/setup_gpu.sh with your options: it installs {PROFILE} for this bwrap",
        )
    if place.root and (place.container or not place.systemd):
        where = "a container" if place.container else "a place without systemd"
        left = f"runs are user {JOB_UID} and unconfined, the host's presets only: code of requests is refused"
        if place.shut is not None:
            left = f"runs are user {JOB_UID}, which cannot pass {place.shut}: nothing runs here"
            opened = "put interpreter and models where every user can go, such as /usr/local or /opt"
            return f"root in {where} that gives no namespaces ({reason}): {left}", f"{opened}; {_CONFINABLE}"
        return f"root in {where} that gives no namespaces ({reason}): {left}", _CONFINABLE
    return reason, "install bubblewrap and allow user namespaces; until then runs that require it are refused"


def check_slots(
    slots: int, cards: tuple[Card, ...] | None, platform: str = sys.platform, listed: str | None = None
) -> Iterator[Check]:
    """Yield whether each slot has a card of its own; nothing where there is neither a card nor more than one slot.

    Args:
        slots: how many the policy asks for.
        cards: what they share out.
        platform: of this machine.
        listed: what the policy's own CUDA_VISIBLE_DEVICES says, or None.
    """
    if platform == "darwin":
        if slots > 1:
            text = f"slots = {slots}, and a Mac has one GPU: runs take each other's time and memory"
            yield Check("slots", "warn", text, "slots = 1 in policy.toml, unless only small runs come here")
        return
    if cards is None:
        which = f"that CUDA_VISIBLE_DEVICES = {listed} in [env] lists " if listed else ""
        text = f"there are NVIDIA devices {which}and nobody names them: one run at a time"
        rest = "; list whole cards as it has them" if listed else ""
        yield Check("slots", "warn", text, f"install nvidia-ml-py beside kakeya (extra torch); see nvidia-smi -L{rest}")
    elif cards and slots > len(cards):
        text = f"slots = {slots}, and there are {len(cards)} cards: {len(cards)} runs at a time, each with its own"
        yield Check("slots", "warn", text, f"slots = {len(cards)} in policy.toml")
    elif cards:
        yield Check("slots", "ok", f"{slots} of {len(cards)} cards, one each")


def check_cuda(packages: Mapping[str, str], drivers: Mapping[str, str]) -> Iterator[Check]:
    """Yield whether torch fits this machine's driver; nothing where there is no torch or no driver.

    Args:
        packages: of the policy's interpreter, with their versions.
        drivers: of the host, as its record says.
    """
    wheel, driver = wheel_cuda(packages), driver_cuda(drivers)
    if driver is None or "torch" not in packages:
        return
    has, build = _dotted(driver), f"cu{driver[0]}{driver[1]}"
    again = f"install a torch built for {build}, or the nearest below (pytorch.org/get-started/locally)"
    if wheel is None:
        text = f"torch {packages['torch']} does not say which CUDA it was built for; the driver has {has}"
        yield Check("cuda", "warn", text, again)
    elif wheel == "cpu":
        yield Check("cuda", "fail", f"torch {packages['torch']} was built without CUDA; the driver has {has}", again)
    elif wheel[0] > driver[0]:
        text = f"torch was built for CUDA {_dotted(wheel)}, the driver has {has}"
        yield Check("cuda", "fail", text, f"{again}, or upgrade the driver")
    elif older_driver(packages, drivers) is not None:
        text = f"torch was built for CUDA {_dotted(wheel)}, newer than the driver's {has}"
        yield Check("cuda", "warn", f"{text}: absolute numbers do not count", f"{again}, or upgrade the driver")
    else:
        yield Check("cuda", "ok", f"torch was built for CUDA {_dotted(wheel)}, the driver has {has}")


def check_packages(sites: Sequence[Path], strange: Sequence[Path]) -> Iterator[Check]:
    """Yield what Python may load beside the packages that were installed; nothing where there is nothing.

    Files that were changed are not looked for: that reads every package whole, which a claim run does.

    Args:
        sites: where packages are installed.
        strange: other places that Python looks at for modules.
    """
    starting, added = added_files(sites)
    found = [*starting, *map(str, strange), *added]
    if found:
        more = f" and {len(found) - _NAMED_MOST} more" if len(found) > _NAMED_MOST else ""
        yield Check(
            "packages",
            "warn",
            f"Python loads what no package lists: {', '.join(found[:_NAMED_MOST])}{more}; no claim run counts",
            "remove it, or make an environment with python3 -m venv and install kakeya there",
        )


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
