"""The commit a request is compared with runs too: a trusted head lends its base no trust."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.runner.authorisation.code_trust import CodeTrust, judge_base
from bridge.runner.authorisation.signers import Signers
from bridge.runner.policy.file import read_policy
from tests.integration.trust.test_code_trust import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def judge(repository: Repository, head: str, base: str) -> CodeTrust:
    assert repository.judge(head).trust_class == "trusted"
    ref, _ = repository.ask(head)
    policy = read_policy("\n".join(['schema = 1\nname = "mini"', *repository.policy_lines]).encode())
    return judge_base(policy, Signers(policy), repository.client("host").history, ref, base)


def test_a_base_on_the_protected_ref_is_trusted_and_one_that_was_merged_in_is_not(repository):
    repository.protect(repository.root)
    early = repository.commit("early")
    repository.git("checkout", "-q", "-b", "feature")
    merged = repository.commit("merged")
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--no-ff", "-m", "merge", "feature")
    head = repository.commit("head")
    repository.push("main")
    assert judge(repository, head, early).trust_class == "trusted"
    code_trust = judge(repository, head, merged)
    assert code_trust.trust_class == "untrusted"
    assert code_trust.why.startswith("base: ")


def test_a_base_before_the_floor_or_nowhere_is_untrusted(repository):
    repository.protect(repository.root)
    head = repository.commit("head")
    repository.push("main")
    assert judge(repository, head, repository.root).trust_class == "untrusted"
    code_trust = judge(repository, head, "ab" * 20)
    assert code_trust.trust_class == "untrusted"
    assert "cannot be read" in code_trust.why
