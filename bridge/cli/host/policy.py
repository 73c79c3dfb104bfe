"""`kakeya-runner policy`: check or explain the policy file, or print an example."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.cli.host.places import policy_path
from bridge.cli.host.signing import own_name
from bridge.cli.screen.answer import Answer, Talk
from bridge.cli.screen.findings import answer_checks
from bridge.cli.talk import CLOCK
from bridge.runner.authorisation.trust_files import check_principal
from bridge.runner.policy.file import load_policy

if TYPE_CHECKING:
    from bridge.cli.host.call import HostCall
    from bridge.cli.table.runner_options import PlaceOptions, PolicyExplainOptions


def example(_call: HostCall[PlaceOptions]) -> Answer:
    """Return a policy file for this machine."""
    from bridge.runner.maintenance.setup import template

    return Answer(lines=[template(own_name()).removesuffix("\n")])


def check(call: HostCall[PlaceOptions]) -> Answer:
    """Name each mistake of the policy file; print what it says where it has none."""
    from bridge.runner.policy.check import problems

    path = policy_path(call.options)
    answer = answer_checks(call.output, problems(path))
    if answer.exit_code:
        return answer
    policy = load_policy(path)
    text = json.dumps(policy.model_dump(mode="json") | {"secrets": sorted(policy.secrets)}, indent=1)
    talk = Talk("note", f"{path} is a policy, digest {policy.digest(embedded=False)}")
    return replace(answer, lines=[text, talk])


def explain(call: HostCall[PolicyExplainOptions]) -> Answer:
    """Say what a request of a preset would get."""
    from bridge.runner.authorisation.explain import what_would_run

    policy, name = load_policy(policy_path(call.options)), call.options.as_
    asker = None if name is None else check_principal(name)
    return Answer(lines=what_would_run(policy, call.options.preset, CLOCK, asker))
