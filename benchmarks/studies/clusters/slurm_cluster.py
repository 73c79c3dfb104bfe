"""Slurm on this machine for a study: its daemons, several nodes of its own, jobs of a user without rights.

From Debian's packages `slurm-wlm` and `munge`. Nodes are `slurmd -N`, so they share the kernel: what differs between
machines (clocks, NFS) is not shown here. Needs root, for daemons that start jobs of another user.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

_TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")
_SBIN = "/usr/sbin:/usr/bin:/sbin:/bin"
_CONF = """ClusterName=kakeya
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={port}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=30
KillWait=5
MinJobAge=300
{overrides}
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=kakeya Nodes={names} Default=YES MaxTime=1440 State=UP PriorityTier=1
PartitionName=urgent Nodes={names} MaxTime=1440 State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=closed Nodes={names} MaxTime=1440 State=UP AllowAccounts=staff
PartitionName=others Nodes={names} MaxTime=1440 State=UP AllowGroups=daemon
PartitionName=small Nodes=n1 MaxTime=1440 State=UP
PartitionName=large Nodes=n2 MaxTime=1440 State=UP
"""
# Not /proc/cpuinfo: under a /proc that is partly hidden no sandbox can mount its own.
_UNLIKE = 'hostname "$1" && mount --bind "$2" /sys/devices/system/cpu/online && shift 2 && exec "$@"'


@dataclass
class Cluster:
    """A cluster that runs.

    Attributes:
        folder: of its configuration and logs.
        nodes: how many it has, with `cpus` slots each.
        unlike: whether a node has a name of its own, and the even ones see a processor less than there are.
    """

    folder: Path
    nodes: int = 2
    cpus: int = 2
    unlike: bool = False
    started: list[list[str]] = field(default_factory=list)

    @property
    def conf(self) -> Path:
        """The configuration that Slurm's commands need."""
        return self.folder / "slurm.conf"

    def environment(self) -> dict[str, str]:
        """Return what Slurm's commands need."""
        return {"SLURM_CONF": str(self.conf), "PATH": _SBIN}

    def call(self, *words: str) -> str:
        """Run one of Slurm's commands as root and return what it prints."""
        done = subprocess.run(words, env=self.environment(), capture_output=True, text=True, timeout=60, check=False)
        return (done.stdout or done.stderr).strip()

    def start(self, daemon: str, *words: str) -> None:
        """Start a daemon, which goes into the background."""
        subprocess.run([daemon, *words], env=self.environment(), check=True, timeout=60)

    def stop(self, pid_file: str) -> None:
        """Kill a daemon that this study started, by its own process id."""
        with suppress(OSError, ValueError):
            pid = int((self.folder / pid_file).read_text())
            os.kill(pid, 15)
            for _ in range(200):
                os.kill(pid, 0)
                time.sleep(0.05)
            os.kill(pid, 9)

    def controller(self) -> None:
        """Start slurmctld, and wait until it answers."""
        self.start("slurmctld", "-f", str(self.conf))
        until(lambda: "UP" in self.call("scontrol", "ping"), "slurmctld does not answer")

    def node(self, number: int) -> None:
        """Start the daemon of a node."""
        words = ("slurmd", "-f", str(self.conf), "-N", f"n{number}")
        if not self.unlike:
            self.start(*words)
            return
        online = self.folder / f"online-n{number}"
        online.write_text(f"0-{(os.cpu_count() or 1) - 1 - (number + 1) % 2}\n")
        self.start("unshare", "--uts", "--mount", "--propagation=private", "sh", "-c", _UNLIKE, "sh", f"n{number}",
                   str(online), *words)  # fmt: skip


def until(question: object, why: str, patience_s: float = 600.0) -> None:
    """Wait until something holds.

    Raises:
        RuntimeError: it never did.
    """
    end = time.monotonic() + patience_s
    while not question():  # type: ignore[operator]
        if time.monotonic() > end:
            raise RuntimeError(why)
        time.sleep(0.2)


@contextmanager
def cluster(folder: Path, nodes: int = 2, cpus: int = 2, *, unlike: bool = False) -> Iterator[Cluster]:
    """Yield a cluster of this machine, taken down at the end of the block.

    Raises:
        RuntimeError: this process is not root, or the packages are not there.
    """
    missing = [tool for tool in _TOOLS if shutil.which(tool, path=_SBIN) is None]
    if os.geteuid() != 0 or missing:
        raise RuntimeError(f"needs root and slurm-wlm, munge; missing: {', '.join(missing) or 'root'}")
    made = Cluster(folder, nodes, cpus, unlike)
    munge = pwd.getpwnam("munge")
    (folder / "munge").mkdir()
    (folder / "munge" / "key").write_bytes(secrets.token_bytes(1024))
    (folder / "state").mkdir()
    for path in (folder / "munge", folder / "munge" / "key"):
        os.chown(path, munge.pw_uid, munge.pw_gid)
    (folder / "munge").chmod(0o711)
    (folder / "munge" / "key").chmod(0o400)
    folder.chmod(0o755)
    base, names = 20000 + os.getpid() % 20000, [f"n{number}" for number in range(1, nodes + 1)]
    host = socket.gethostname().partition(".")[0]
    rows = [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={base + number} CPUs={cpus} RealMemory=2000 "
        f"Features={'odd' if number % 2 else 'even'} Gres=gpu:{'small' if number % 2 else 'large'}:1 State=UNKNOWN"
        for number, name in enumerate(names, 1)
    ]
    made.conf.write_text(
        _CONF.format(
            host=host,
            folder=folder,
            port=base,
            nodes="\n".join(rows),
            names=",".join(names),
            overrides="SlurmdParameters=config_overrides" if unlike else "",
        )
    )
    # Any device stands for a card: what is asked of Slurm is which node has which.
    gres = [
        f"NodeName={name} Name=gpu Type={'small' if at % 2 else 'large'} File=/dev/{'null' if at % 2 else 'zero'}"
        for at, name in enumerate(names, 1)
    ]
    (folder / "gres.conf").write_text("\n".join(gres) + "\n")
    munged = ["munged", f"--key-file={folder}/munge/key", f"--socket={folder}/munge/socket",
              f"--pid-file={folder}/munge/pid", f"--log-file={folder}/munge/log",
              f"--seed-file={folder}/munge/seed", "--force"]  # fmt: skip
    subprocess.run(
        ["setpriv", f"--reuid={munge.pw_uid}", f"--regid={munge.pw_gid}", "--clear-groups", *munged],
        env={"PATH": _SBIN}, check=True, timeout=60,
    )  # fmt: skip
    try:
        made.controller()
        for number in range(1, nodes + 1):
            made.node(number)
        until(
            lambda: made.call("sinfo", "-h", "-N", "-p", "kakeya", "-o", "%T").split() == ["idle"] * nodes,
            "its nodes never came up",
        )
        yield made
    finally:
        for number in range(1, nodes + 1):
            made.stop(f"slurmd-n{number}.pid")
        made.stop("slurmctld.pid")
        made.stop("munge/pid")
