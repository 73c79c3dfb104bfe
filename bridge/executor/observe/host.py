"""Describe the machine: measured once, `unknown` where there is no source.

Knows nothing about runs or policies.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import sys
from pathlib import Path
from typing import Final

import psutil

from bridge.errors import InfrastructureError
from bridge.records.run import HostRecord
from bridge.system.process import run

UNKNOWN: Final = "unknown"
_TOOL_S: Final = 5.0
# Names hypervisors give the machine they emulate.
_VIRTUAL_PRODUCTS: Final = (
    "kvm",
    "qemu",
    "vmware",
    "virtualbox",
    "virtual machine",
    "firecracker",
    "xen",
    "parallels",
    "bochs",
)


def describe() -> HostRecord:
    """Measure the machine."""
    devices, drivers = _nvidia() if sys.platform != "darwin" else _apple()
    return HostRecord(
        name=_clean(socket.gethostname()) or UNKNOWN,
        os=platform.system() or UNKNOWN,
        os_version=_os_version(),
        machine=platform.machine() or UNKNOWN,
        cpu=_cpu(),
        cpu_count=os.cpu_count() or 0,
        memory_bytes=int(psutil.virtual_memory().total),
        devices=devices,
        drivers=drivers,
        virtualised=_virtualised(),
    )


def boot_id() -> str:
    """Return what names this start of the kernel; empty where the platform has no such name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _clean(text: str) -> str:
    """Return printable text of bounded length: some of it comes from firmware."""
    return "".join(char for char in text.strip() if char.isprintable())[:200]


def _tool(*argv: str) -> str | None:
    """Return what a small system program prints whatever its exit code, or None when it cannot be run."""
    try:
        done = run(argv, timeout_s=_TOOL_S, max_output_bytes=1 << 20)
    except InfrastructureError:
        return None
    return None if done.timed_out else done.stdout.decode("utf-8", "replace").strip()


def _os_version() -> str:
    """Return the distribution and kernel, or the macOS version."""
    if sys.platform == "darwin":
        return _clean(f"macOS {platform.mac_ver()[0]} {platform.release()}")
    name = ""
    with contextlib.suppress(OSError):
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    return _clean(f"{name} {platform.release()}") or UNKNOWN


def _cpu() -> str:
    """Return the processor's name."""
    if sys.platform == "darwin":
        return _clean(_tool("/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string") or "") or UNKNOWN
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip().lower() in ("model name", "cpu model"):
                return _clean(value)
    return _clean(platform.processor()) or UNKNOWN


def _nvidia() -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the NVIDIA devices' names and the driver's versions, as NVML tells them."""
    try:
        import pynvml
    except ImportError:
        return (), {"nvidia": "unknown: no NVML binding is installed (nvidia-ml-py)"}
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        names = tuple(
            f"cuda:{index} {_clean(pynvml.nvmlDeviceGetName(handle))}" for index, handle in enumerate(handles)
        )
        cuda = pynvml.nvmlSystemGetCudaDriverVersion()
        drivers = {
            "nvidia": _clean(pynvml.nvmlSystemGetDriverVersion()),
            "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
            "nvml": _clean(pynvml.nvmlSystemGetNVMLVersion()),
        }
    except pynvml.NVMLError as error:
        return (), {"nvidia": f"unknown: {_clean(str(error))}"}
    return names, drivers


def _apple() -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the Apple GPU as the system names it; Metal comes with the system."""
    chip = _tool("/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string")
    model = _tool("/usr/sbin/sysctl", "-n", "hw.model")
    wired = _tool("/usr/sbin/sysctl", "-n", "iogpu.wired_limit_mb")
    devices = (f"metal:0 {_clean(chip)}",) if chip and chip.startswith("Apple") else ()
    drivers = {"metal": f"macOS {platform.mac_ver()[0]}", "model": _clean(model or "") or UNKNOWN}
    if wired:
        drivers["iogpu_wired_limit_mb"] = _clean(wired)
    return devices, drivers


def _virtualised() -> str:
    """Return the hypervisor or container we run in, `none` on bare metal, or `unknown`."""
    if sys.platform == "darwin":
        answer = _tool("/usr/sbin/sysctl", "-n", "kern.hv_vmm_present")
        return {"0": "none", "1": "vm"}.get(answer or "", UNKNOWN)
    for path in ("/usr/bin/systemd-detect-virt", "/bin/systemd-detect-virt"):
        answer = _tool(path) if Path(path).exists() else None
        if answer:
            return _clean(answer)
    with contextlib.suppress(OSError):
        product = Path("/sys/class/dmi/id/product_name").read_text(encoding="utf-8", errors="replace").lower()
        for name in _VIRTUAL_PRODUCTS:
            if name in product:
                return name
    with contextlib.suppress(OSError):
        if " hypervisor" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"):
            return "vm"
    return UNKNOWN
