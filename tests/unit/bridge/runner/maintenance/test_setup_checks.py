"""What doctor says of the files that set-up made, by the receipt beside the policy."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from bridge.runner.maintenance.setup_checks import check


def findings(folder: Path, name: str, mode: int, user: str) -> list[str]:
    """Return the repairs of a file that the receipt has with mode 600."""
    file = folder / "policy.toml"
    file.touch()
    file.chmod(mode)
    receipt = folder / "setup.tsv"
    receipt.write_text(f"mode\t{name}\t{file}\t600\t{user}\n")
    checked = check(receipt)
    assert checked is not None
    return [problem.remedy or "" for problem in checked.problems]


@pytest.mark.skipif(os.geteuid() != 0, reason="the policy is root's")
def test_a_policy_of_roots_that_the_services_group_may_read_is_right(tmp_path: Path) -> None:
    """`chmod 600`, which doctor said, would have kept the service from its own policy."""
    me = pwd.getpwuid(os.geteuid()).pw_name
    assert findings(tmp_path, "policy", 0o640, me) == []
    assert findings(tmp_path, "policy", 0o640, "nobody") == [f"chmod 600 {tmp_path}/policy.toml"]
    assert findings(tmp_path, "signing key", 0o640, me) == [f"chmod 600 {tmp_path}/policy.toml"]


def test_a_policy_that_others_may_read_is_to_be_closed(tmp_path: Path) -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    assert findings(tmp_path, "policy", 0o600, me) == []
    assert findings(tmp_path, "policy", 0o644, me) == [f"chmod 600 {tmp_path}/policy.toml"]
