"""`presets`, `presets show`, `explain`: the presets, and the job that each resolves to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bridge.cli.mac.context import Invocation
from bridge.cli.screen.answer import Answer, Fitted, Line, Row, Talk
from bridge.client.document.parts import PresetRow
from bridge.client.document.untrusted import clean_line
from bridge.client.send.offered import find_own, own_presets
from bridge.client.send.parameters import split, typed
from bridge.client.send.workload import resolve_names
from bridge.errors import InfrastructureError, UsageError
from bridge.ids import is_id
from bridge.presets.installed import find as find_preset
from bridge.presets.installed import registry
from bridge.presets.model import Preset

if TYPE_CHECKING:
    from bridge.cli.table.command import Options
    from bridge.cli.table.options import ExplainOptions, PresetsOptions, PresetsShowOptions
    from bridge.client.connection.session import BusSession


def presets(call: Invocation[PresetsOptions]) -> Answer:
    """List the presets that may be run."""
    session = _session(call)
    own, offered = _own(call, session), _offered(call, session)
    every = {**own, **{name: preset for name, preset in registry().items() if name not in own}}
    shown = {name: preset for name, preset in every.items() if call.options.all or preset.status == "ready"}
    able = {name: preset for name, preset in shown.items() if name in own or offered is None or name in offered}
    printed = shown if call.options.all else own or able
    lines: list[Line] = []
    for name, preset in printed.items():
        planned = "" if preset.status == "ready" else " (planned, not built yet)"
        lines.append(Fitted(clean_line(f"{name:<38} {preset.description}{planned}"), 4))
    hidden = len(every) - len(printed)
    if hidden:
        unable = "that nothing here can run now" if len(able) < len(shown) else "planned"
        what = "of the engine" if own else unable
        lines.append(Talk("note", f"{hidden} presets {what} are not shown; kakeya-mac presets --all"))
    whole = {name: preset.model_dump(mode="json", by_alias=True) for name, preset in own.items()}
    data = [
        PresetRow(name, preset.status, preset.description, preset.code, name in able, whole.get(name))
        for name, preset in shown.items()
    ]
    return Answer(data, lines)


def own_here(call: Invocation[Options]) -> dict[str, Preset]:
    """Return what the bus of the command offers beside the installed presets."""
    return _own(call, _session(call))


def _session(call: Invocation[Options]) -> BusSession | None:
    """Return the bus of the command, None on this machine's own and where it cannot be read, which is said."""
    if call.settings().bus.embedded:
        return None
    try:
        session = call.connect(quiet=True)
        session.runners()
    except InfrastructureError as error:
        call.output.say("note", f"only installed presets are known, the bus cannot be read: {error.message}")
        return None
    return session


def _own(call: Invocation[Options], session: BusSession | None) -> dict[str, Preset]:
    settings = call.settings()
    if session is None and not settings.bus.embedded:
        return {}
    return own_presets(session, call.local_presets, settings.state_dir)


def _offered(call: Invocation[Options], session: BusSession | None) -> frozenset[str] | None:
    """Return the names that a live runner offers, on this machine's own bus those that it has the packages for.

    None where nothing says so: no runner is awake, or the bus cannot be read.
    """
    if session is None:
        return call.runnable_here() if call.settings().bus.embedded else None
    live = [runner.beacon for runner in session.runners() if runner.live]
    return frozenset(name for beacon in live for name in beacon.presets) if live else None


def preset_called(call: Invocation[Options], name: str) -> Preset:
    """Return an installed preset, or one that this bus offers.

    Raises:
        PresetNotFoundError: there is none.
    """
    return registry()[name] if name in registry() else find_own(name, own_here(call))


def show(call: Invocation[PresetsShowOptions]) -> Answer:
    """Show parameters, commands, reports and limits of one preset."""
    preset = preset_called(call, call.options.preset)
    lines = [Row(label, clean_line(text)) for label, text in _facts(preset)]  # anybody who may push may offer one
    return Answer({**preset.model_dump(mode="json", by_alias=True), "digest": preset.digest()}, lines)


def _facts(preset: Preset) -> Iterator[tuple[str, str]]:
    """Yield label and text of every line about a preset."""
    from bridge.mcp.schemas import described

    yield "preset", preset.name
    yield "what", preset.description
    yield "status", preset.status
    yield "code", _whose(preset)
    yield "profiles", ", ".join(preset.offered_profiles)
    for name, parameter in preset.params.items():
        facts = parameter.model_dump(mode="json", exclude={"help", "type", "allow_dash"}, exclude_none=True)
        sources = ", ".join(
            f"{key} {' | '.join(map(str, value)) if isinstance(value, list) else value}" for key, value in facts.items()
        )
        yield "param", f"{name}: {parameter.help} ({parameter.type}; {sources or 'required'})"
    for metric in () if preset.workload is None else preset.workload.metrics:
        yield "metric", described(metric)
    for command in preset.commands:
        yield "command", f"{command.name}: {' '.join(command.argv)}"
    for report in preset.outputs:
        yield "report", f"{report.path} ({report.kind}{'' if report.required else ', optional'})"
    limits = preset.limits.model_dump(mode="json", exclude_none=True, exclude={"claim"})
    for name, value in limits.items():
        yield "limit", f"{name} = {value}"
    yield "digest", preset.digest()


def _whose(preset: Preset) -> str:
    if preset.code == "request":
        return "the request's tree"
    return "the host's installed engine" if preset.workload is None else f"the owner's {preset.workload.label}"


def explain(call: Invocation[ExplainOptions]) -> Answer:
    """Show what a preset or a run resolves to, with every decision's reason."""
    what = call.options.what
    is_run = what.startswith("@") or is_id(what.lower())
    is_preset = what in registry() or (not is_run and what in own_here(call))
    lines, data = _explain_preset(call) if is_preset else _explain_run(call)
    return Answer(data, [Fitted(clean_line(line), 4) for line in lines])


def _explain_run(call: Invocation[ExplainOptions]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Read the decisions the host wrote into a result."""
    from bridge.presets.resolution import explain as explain_spec

    what = call.options.what
    if not is_id(what.lower()) and not what.startswith("@") and "-" in what:
        find_preset(what)  # says which presets there are
    status = call.find_run(what).status()
    if status.result is None or status.result.spec is None:
        why = status.message or f"it is {status.state_text}"
        raise UsageError(
            f"{status.id} was not resolved to anything that runs: {why}", remedy=f"kakeya-mac status {status.id}"
        )
    spec = status.result.spec
    return explain_spec(spec), spec.model_dump(mode="json")


def _explain_preset(call: Invocation[ExplainOptions]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Resolve here, with the policy an embedded runner of this installation would use."""
    from bridge.cli.mac.local_policy import local_spec
    from bridge.presets.resolution import explain as explain_spec

    preset = preset_called(call, call.options.what)
    repository = call.settings().repository if preset.commits else None
    top = None if repository is None else repository.top
    values = resolve_names(top, preset, typed(preset, split(call.options.param or ())))
    spec = local_spec(preset, values, call.options.profile, call.environment, call.clock.now())
    head = ("resolved on this machine, with the policy of its embedded runner; another host has its own:",)
    return (*head, *explain_spec(spec)), spec.model_dump(mode="json")
