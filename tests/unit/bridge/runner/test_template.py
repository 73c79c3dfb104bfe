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
    text = re.sub(r"^# (?=[a-z_A-Z]+ = |\[)", "", TEXT, flags=re.MULTILINE)
    policy = read_policy(text.replace("…/", "").encode())
    assert policy.sandbox.uid == 501
    shown = set(re.findall(r"^(?:\[?)([a-z_]+)", text, re.MULTILINE))
    fields = {("env" if name == "environment" else name) for name in Policy.model_fields} - {
        "schema_version",
    }
    assert fields <= shown | {"schema"}
