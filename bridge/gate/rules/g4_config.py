"""The settings agree with each other and with what was measured.

A report's settings are what a reader would repeat.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of


@report_rule("G4-CONFIG", kinds=kinds.SAMPLED, remedy="Let the harness describe the settings it ran with.")
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    config, arms = report.body["config"], arms_of(report, evidence)
    if config["dtype"] != config["target"]["dtype"]:
        yield Violation(f"dtype {config['dtype']!r}, the target's is {config['target']['dtype']!r}", "/config/dtype")
    drafts = any(sample["accepted_per_step"] is not None for arm in arms.all for sample in arm.samples)
    for name in ("drafter", "block_size", "depth"):
        if (config.get(name) is not None) != drafts:
            said = "an arm drafts" if drafts else "no arm drafts"
            yield Violation(f"{said}, {name} is {config.get(name)}", f"/config/{name}")
    depth = config.get("depth")
    if depth is not None and config.get("block_size") is not None:
        longest = depth.get("tokens") if depth["policy"] == "fixed" else depth.get("longest")
        if type(longest) is not int:
            yield Violation(f"the depth {depth} has no length", "/config/depth")
        elif config["block_size"] != longest + 1:
            yield Violation(f"block_size {config['block_size']} with a depth of {longest}", "/config/block_size")
        trained = (config.get("drafter") or {}).get("block_size")
        if trained is not None and config["block_size"] > trained:
            yield Violation(f"block_size {config['block_size']}, the drafter's is {trained}", "/config/block_size")
    if (config["stop"] == "natural") != bool(config["stopping_ids"]):
        yield Violation(f"stop {config['stop']!r} with stopping_ids {config['stopping_ids']}", "/config/stopping_ids")
    path = next((arm.code_path for arm in arms.reference), "")
    home = {"mlx": "mlx_lm.", "torch": "transformers."}.get(report.body["environment"]["backend"])
    if home is None:
        backend = report.body["environment"]["backend"]
        yield Violation(f"backend {backend!r} decodes nothing, expected mlx or torch", "/environment/backend")
    elif path and not path.startswith(home) and report.kind != kinds.COMMIT_COMPARISON:  # compares the engine's own
        yield Violation(f"the baseline is {path!r}, expected the library's own decoding ({home}…)", "/arms")
