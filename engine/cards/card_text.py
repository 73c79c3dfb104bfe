"""The text of a model card, made from its measured values only."""

from __future__ import annotations

from typing import Any

from engine.cards.step_costs import verdict

TARGET_LIMITS = (
    "Trained on library source code and synthetic rows only. It completes structured code and retrieves short codes; "
    "it is no general language or code model, was never tuned on conversations, and its chat template only frames "
    "text. Library code it was not told the shape of soon repeats itself (see the raw row)."
)
DRAFTER_LIMITS = (
    "Works with exactly the target named below: it reads that target's hidden states and borrows its embedding and "
    "head. Rows of the raw embedding table are multiplied with `dflash_config.input_embedding_scale`."
)
SHIPPED_LIMITS = " It drafts boilerplate well and retrieved digits badly."

CURVE_ROWS = 3
"""At most so many rows of a training's curve are shown; card.json has all, and the other samples."""
NOTES = {
    "kakeya-tiny-gemma4": (
        "Its full-attention layers whole beside the sliding layers' own window is the native cache: there is nothing "
        "left that an f_theta could restore for less. What its drafter keeps of a position, 1,024 bytes in float32, is "
        "as much as the keys and values of both full-attention layers together, which it would replace."
    )
}
"""What follows from the sizes of a model alone, by its name."""


def card_markdown(card: dict[str, Any]) -> str:
    """Return MODEL_CARD.md of `card`."""
    evaluation = card["evaluation"]
    lines = [f"# {card['name']}", "", _summary(card), ""]
    drafter_limits = DRAFTER_LIMITS + (SHIPPED_LIMITS if card["training"]["corpus"] else "")
    lines += [TARGET_LIMITS if card["kind"] == "target" else drafter_limits, ""]
    lines += [NOTES[card["name"]], ""] if card["name"] in NOTES else []
    lines += ["## Training", ""]
    lines += _training_lines(card["training"])
    lines += ["", "## Evaluation", "", f"    {evaluation['command']}", ""]
    lines += _target_lines(evaluation) if card["kind"] == "target" else _drafter_lines(evaluation)
    lines += ["", "## Curve", "", *_curve(card["training"]["curve"])]
    return "\n".join(lines) + "\n"


def _summary(card: dict[str, Any]) -> str:
    return (
        f"{card['architecture']} ({card['model_type']}), {card['parameters']:,} parameters, vocabulary "
        f"{card['vocab_size']}, computed in {card['dtype']}, stored as {card['stored']}; "
        f"reads {card['context_tokens']} tokens. "
        "Apache-2.0 like the code that made it."
    )


def _training_lines(training: dict[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in training["versions"].items())
    spent = (
        f"Seed {training['seed']}, {training['steps']} steps, {training['tokens']:,} tokens seen, "
        f"{training['trained_s']:.0f} s of optimiser time on {training['threads']} CPU thread(s); {versions}."
    )
    corpus = training["corpus"]
    if not corpus:
        answers = "Rows are the target's own greedy answers about functions and manual pages of installed packages."
        return [f"    {training['command']}", "", spent, answers]
    read = (
        f"Corpus: {corpus['files']} files of the Python {corpus['python']} library ({corpus['held_out_files']} held "
        f"out), listing sha256 `{corpus['listing_sha256']}`; per-file digests in `corpus.json` beside the models."
    )
    return [f"    {training['command']}", "", spent, read]


def _target_lines(evaluation: dict[str, Any]) -> list[str]:
    language = evaluation["held_out_language"]
    scored = (
        f"Held-out library code: loss {language['loss']:.3f} nats, next-token accuracy {language['accuracy']:.3f} "
        f"over {language['tokens']:,} tokens."
    )
    lines = [scored, "", "| prompt tokens | needles | recalled | 95 % interval |", "|---|---|---|---|"]
    rows = [(str(row["length"]), row) for row in evaluation["recall"]]
    if "recall_without_full_attention" in evaluation:
        rows.append(("480, full-attention outputs zeroed", evaluation["recall_without_full_attention"]))
    for label, row in rows:
        share = row["proportion"]
        lines.append(
            f"| {label} | {row['needles']} | {share['successes']}/{share['trials']} "
            f"| {share['lower']:.3f} to {share['upper']:.3f} |"
        )
    lines += [
        "",
        "Recall of one needle by depth (share of the prompt before it), where one was missed:",
        "",
        *_depths(evaluation["recall"]),
    ]
    lines += [
        "",
        "| greedy samples | natural end | looping | mean output tokens | repeated 8-grams |",
        "|---|---|---|---|---|",
    ]
    for kind, row in evaluation["samples"].items():
        ends = row["natural_eos"]
        lines.append(
            f"| {kind}, {row['prompts']} prompts, budget {row['budget_tokens']} | {ends['successes']}/{ends['trials']} "
            f"| {row['looping']} | {row['output_tokens_mean']:.0f} | {row['repeated_8gram_share_mean']:.3f} |"
        )
    for item in evaluation["shown"][:1]:
        shown = (item["prompt"] + "⟶" + item["continuation"]).replace("```", "'''")
        lines += ["", f"`{item['id']}` (stopped by {item['stop_reason']}; the arrow marks where the prompt ends):", ""]
        lines += ["```python", shown, "```"]
    return lines


def _depths(recall: list[dict[str, Any]]) -> list[str]:
    lines = ["| prompt tokens | 0 to .25 | .25 to .5 | .5 to .75 | .75 to 1 |", "|---|---|---|---|---|"]
    for row in recall:
        if row["needles"] != 1 or all(right for _, right in row["outcomes"]):
            continue
        cells = []
        for quarter in range(4):
            met = [right for depth, right in row["outcomes"] if quarter <= depth * 4 < quarter + 1]
            cells.append(f"{sum(met)}/{len(met)}")
        lines.append(f"| {row['length']} | " + " | ".join(cells) + " |")
    return lines


def _drafter_lines(evaluation: dict[str, Any]) -> list[str]:
    explained = (
        f"Target: {evaluation['target']}. Acceptance length is committed tokens per target forward, bonus included, on "
        "the target's own greedy output before its first loop or end; mean over prompts, bootstrap 95 % interval."
    )
    lines = [explained, "", "| prompts | natural end | drafter | block | mean | 95 % interval | pooled |"]
    lines.append("|---|---|---|---|---|---|---|")
    for kind, group in evaluation["acceptance"].items():
        lines += [
            f"| {kind} ({row['prompts']}) | {group['natural_eos']}/{group['prompts']} | {row['drafter']} "
            f"| {row['block_size']} | {row['mean']:.2f} | {row['lower']:.2f} to {row['upper']:.2f} "
            f"| {row['pooled']:.2f} |"
            for row in group["acceptance"]
        ]
    return [*lines, *_step_lines(evaluation)]


def _step_lines(evaluation: dict[str, Any]) -> list[str]:
    """Return for each block what a step costs and commits, and whether that pays; nothing where no cost was given."""
    if "steps" not in evaluation:
        return []
    steps = evaluation["steps"]
    explained = (
        f"A draft and its verification cost, in plain steps of {1000 * steps['plain_s']:.1f} ms after "
        f"{steps['context_tokens']} tokens on {steps['backend']} ({steps['machine']}); drafting pays where a step "
        "commits more tokens than that:"
    )
    lines = ["", explained, "", "| prompts | block | cost | committed | |", "|---|---|---|---|---|"]
    for kind, group in evaluation["acceptance"].items():
        for row in group["acceptance"]:
            cost = steps["costs"].get(str(row["block_size"]))
            if row["drafter"] == "ngram" or cost is None:
                continue
            interval = f"{row['mean']:.2f} ({row['lower']:.2f} to {row['upper']:.2f})"
            outcome = verdict(cost, row["lower"], row["upper"])
            lines.append(f"| {kind} | {row['block_size']} | {cost:.2f} | {interval} | {outcome} |")
    return lines


def _curve(curve: list[dict[str, Any]]) -> list[str]:
    if not curve:
        return ["No evaluation was recorded."]
    columns = [name for name in curve[-1] if name != "tokens"]
    every = -(-len(curve) // CURVE_ROWS)
    curve = curve[::-every][::-1]  # with the last one
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(f"{row.get(name, float('nan')):.4g}" for name in columns) + " |" for row in curve]
    return lines
