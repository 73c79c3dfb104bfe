"""Resolve a preset as the embedded runner of this machine would, with the policy it would use.

The one place where the requester's command line looks at the runner's side; it starts nothing.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping

from bridge.client.send.draft import RequestDraft, request_of
from bridge.ids import new_id
from bridge.presets.facts import Trust
from bridge.presets.model import Preset
from bridge.presets.parameters import bind
from bridge.presets.resolution import resolve
from bridge.records.base import ParamValue
from bridge.records.jobspec import JobSpec
from bridge.records.request import Profile, Workload
from bridge.request import DEFAULT_TEMPLATE, request_branch
from bridge.runner.authorisation.rules import lacking
from bridge.runner.machine.identity import ask_interpreter
from bridge.runner.policy.file import builtin_policy, load_policy, own_presets
from bridge.runner.policy.model import Policy
from bridge.runner.service.serve import default_policy_path

_NO_BUS = "0" * 32
_SOME_TREE = "0" * 40


def local_presets(environment: Mapping[str, str]) -> Mapping[str, Preset]:
    """Return what the embedded runner of this machine offers: the installed presets and the owner's own programs.

    Raises:
        UsageError: the owner's policy or a workload has a mistake.
    """
    return own_presets(_policy(environment))


def runnable_here(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the presets for which the interpreter of the embedded runner has the packages; asks it.

    Raises:
        UsageError: the owner's policy or a workload has a mistake.
    """
    policy = _policy(environment)
    packages = ask_interpreter(policy.interpreter).packages
    return frozenset(name for name, preset in own_presets(policy).items() if not lacking(preset, packages))


def _policy(environment: Mapping[str, str]) -> Policy:
    path = default_policy_path()
    return load_policy(path) if path.exists() else builtin_policy(environment)


def local_spec(
    preset: Preset, values: Mapping[str, ParamValue], profile: Profile, environment: Mapping[str, str], now: dt.datetime
) -> JobSpec:
    """Return the job spec an embedded runner of this installation would make of a request.

    Raises:
        RequestRejectedError: the preset is planned or does not fit.
        ParameterError: a parameter is missing or out of bounds.
    """
    bind(preset.params, values)
    run_id = new_id(int(now.timestamp() * 1000), os.urandom(10))
    workload = None
    if preset.code == "request":
        workload = Workload(commit=_SOME_TREE, tree=_SOME_TREE, origin="", dirty=False)
    # The given values, not the bound ones: a default is to be called one.
    draft = RequestDraft(preset.name, values, profile, workload)
    request = request_of(draft, run_id, _NO_BUS, request_branch(DEFAULT_TEMPLATE, preset.name, run_id), now, who=None)
    facts = _policy(environment).facts(embedded=True)
    return resolve(
        request, preset, facts, Trust(why="an unsigned request on this machine's own bus"), given="command line"
    )
