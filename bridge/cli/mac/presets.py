"""`presets`, `presets show`, `explain`: what may be run, and what it comes to."""

from __future__ import annotations

from typing import Any

from bridge.cli.mac.context import Invocation
from bridge.client.document.envelope import of_data
from bridge.client.send.parameters import split, typed
from bridge.client.send.workload import resolve_names
from bridge.errors import UsageError
from bridge.ids import is_id
from bridge.presets import find as find_preset
from bridge.presets import registry


def presets(call: Invocation) -> int:
    """List presets."""
    shown = [preset for preset in registry().values() if call.args.all or preset.status == "ready"]
    for preset in shown:
        planned = "" if preset.status == "ready" else " (planned, not built yet)"
        call.output.data(f"{preset.name:<38} {preset.description}{planned}")
    hidden = len(registry()) - len(shown)
    if hidden:
        call.output.say("note", f"{hidden} planned presets are not shown; kakeya-mac presets --all")
    data = [{"name": one.name, "status": one.status, "description": one.description, "code": one.code} for one in shown]
    call.output.document(of_data("presets", data))
    return 0


def show(call: Invocation) -> int:
    """Show one preset."""
    preset = find_preset(call.args.preset)
    output = call.output
    output.row("preset", preset.name)
    output.row("what", preset.description)
    output.row("status", preset.status)
    output.row("code", "the host's installed engine" if preset.code == "host" else "the request's tree")
    output.row("profiles", ", ".join(preset.profiles))
    for name, parameter in preset.params.items():
        facts = parameter.model_dump(mode="json", exclude={"help", "type", "allow_dash"}, exclude_none=True)
        said = ", ".join(
            f"{key} {' | '.join(map(str, value)) if isinstance(value, list) else value}" for key, value in facts.items()
        )
        output.row("param", f"{name}: {parameter.help} ({parameter.type}; {said or 'required'})")
    for command in preset.commands:
        output.row("command", f"{command.name}: {' '.join(command.argv)}")
    for report in preset.outputs:
        output.row("report", f"{report.path} ({report.kind}{'' if report.required else ', optional'})")
    limits = preset.limits.model_dump(mode="json", exclude_none=True, exclude={"claim"})
    for name, value in limits.items():
        output.row("limit", f"{name} = {value}")
    output.row("digest", preset.digest())
    output.document(
        of_data("presets show", {**preset.model_dump(mode="json", by_alias=True), "digest": preset.digest()})
    )
    return 0


def explain(call: Invocation) -> int:
    """Show what a preset or a run resolves to, with every decision's reason."""
    what = call.args.what
    lines, data = _explain_preset(call) if what in registry() else _explain_run(call)
    for line in lines:
        call.output.data(line)
    call.output.document(of_data("explain", data))
    return 0


def _explain_run(call: Invocation) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Read the decisions the host wrote into a result."""
    from bridge.cli.mac.look import known
    from bridge.presets import explain as explain_spec

    what = call.args.what
    if not is_id(what.lower()) and not what.startswith("@") and "-" in what:
        find_preset(what)  # says which presets there are
    _, standing = known(call, what)
    if standing.result is None or standing.result.spec is None:
        why = standing.message or f"it is {standing.state_text}"
        raise UsageError(
            f"{standing.id} was not resolved to anything that runs: {why}",
            remedy=f"kakeya-mac status {standing.id}",
        )
    spec = standing.result.spec
    return explain_spec(spec), spec.model_dump(mode="json")


def _explain_preset(call: Invocation) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Resolve here, with the policy an embedded runner of this installation would use."""
    from bridge.cli.mac.local_policy import local_spec
    from bridge.presets import explain as explain_spec

    preset = find_preset(call.args.what)
    repository = call.settings().repository if preset.commits else None
    top = None if repository is None else repository.top
    values = resolve_names(top, preset, typed(preset, split(call.args.param or ())))
    spec = local_spec(preset, values, call.args.profile, call.environment, call.clock.now())
    head = ("resolved on this machine, with the policy of its embedded runner; another host has its own:",)
    return (*head, *explain_spec(spec)), spec.model_dump(mode="json")
