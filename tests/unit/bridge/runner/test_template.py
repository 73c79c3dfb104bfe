"""The policy that `kakeya-runner policy example` prints is one, and every line in it is."""

from __future__ import annotations

import re
from importlib import resources

from bridge.runner.policy.file import read_policy
from bridge.runner.policy.model import Policy

TEXT = (
    resources.files("bridge.runner.policy")
    .joinpath("policy_template.toml")
    .read_text("utf-8")
    .replace('"NAME"', '"mini"')
)


def test_the_example_is_a_policy_of_defaults():
    assert read_policy(TEXT.encode()) == read_policy(b'schema = 1\nname = "mini"\n')


def test_every_line_of_the_example_can_be_turned_on():
    text = re.sub(r"^# (?=[a-z_A-Z]+ = |\[)", "", TEXT, flags=re.MULTILINE).replace("…/", "")
    shown = set(re.findall(r"^(?:\[?)([a-z_]+)", text, re.MULTILINE))
    # Runs on nodes have no other user; a service manager's socket and users of one's own exclude each other.
    placed = re.sub(r"^((peer_)?uid|socket) = .*\n", "", text, flags=re.MULTILINE)
    slurm = re.sub(r"^address = .*\n", "", placed, flags=re.MULTILINE)
    assert read_policy(slurm.encode()).executor.constraints == {"mac": "m4"}
    assert read_policy(slurm.encode()).executor.jobs["mac"].partition == "m"
    ray = re.sub(r"^(partition|modules|sbatch|jobs) = .*\n", "", placed, flags=re.MULTILINE).replace(
        'engine = "slurm"', 'engine = "ray"'
    )
    assert read_policy(ray.encode()).executor.address == "http://127.0.0.1:8265"
    text = re.sub(
        r"^(engine|partition|modules|sbatch|jobs|address|longest_wait_s|constraints) = .*\n",
        "",
        text,
        flags=re.MULTILINE,
    )
    assert read_policy(re.sub(r"^socket = .*\n", "", text, flags=re.MULTILINE).encode()).sandbox.uid == 501
    unnumbered = re.sub(r"^(peer_)?uid = .*\n", "", text, flags=re.MULTILINE)
    assert read_policy(unnumbered.encode()).sandbox.socket == "/run/kakeya-run.sock"
    fields = {("env" if name == "environment" else name) for name in Policy.model_fields} - {
        "schema_version",
    }
    assert fields <= shown | {"schema"}
