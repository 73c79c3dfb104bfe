"""Dispatch `kakeya-engine VERB …` to the module of that verb.

Knows the verbs and nothing about what they do: a verb's module is imported when it is called, so `--help` stays light.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import io
import sys

VERBS = {
    "assets": ("engine.cli.assets", "say whether the small models' weights are here, and add them to a wheel"),
    "inspect": ("engine.cli.inspect", "say what a model folder holds and how it is read"),
    "models": ("engine.cli.models", "add models of other people, list and remove them"),
    "generate": ("engine.cli.generate", "complete a prompt, speculatively or not, streaming"),
    "score": ("engine.cli.score", "say how probable a model holds a text: nats a token and perplexity"),
    "serve": ("engine.cli.serve", "answer OpenAI's completions and chat completions on this machine"),
    "eval": ("engine.cli.eval", "measure a workload and write a schema 3 report"),
    "bench": ("engine.cli.bench", "interleaved comparison against other implementations"),
    "distributed": (
        "engine.cli.distributed.commands",
        "serve a drafter to another process, verify and measure it there",
    ),
    "node": ("engine.cli.distributed.node", "tell other machines what this one can do, and list them"),
    "probe": ("engine.cli.probe", "say what this machine can run, and measure a small matrix product"),
    "tests": ("engine.cli.tests", "run a test suite and write its outcome as a report"),
    "chat": ("engine.cli.chat", "talk to a model, the caches kept from turn to turn"),
    "convert": ("engine.cli.convert", "write a drafter in the file format of another engine"),
    "train": ("engine.cli.train", "train the tokenizer, a target, a DFlash drafter or an f_theta"),
}

WITHOUT_TORCH = frozenset({"generate", "chat", "score", "serve", "inspect", "eval", "bench", "distributed", "probe"})
"""Verbs whose process takes torch in only where a backend or a study asks for it."""


def usage() -> str:
    """Return the help text, one line a verb."""
    lines = [f"  {verb:<11} {summary}" for verb, (_, summary) in VERBS.items()]
    return "usage: kakeya-engine VERB [options]\n\n" + "\n".join(lines) + "\n\n`kakeya-engine VERB --help` says more."


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return its exit code.

    Returns:
        The verb's exit code; 0 for help and version, 2 for an unknown verb.
    """
    arguments = sys.argv[1:] if argv is None else argv
    if isinstance(sys.stdout, io.TextIOWrapper):
        # An answer may hold any character, a terminal's encoding may not.
        sys.stdout.reconfigure(errors="replace")
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(usage())
        return 0
    verb = arguments[0]
    if verb in {"-V", "--version"}:
        print(f"kakeya-engine {importlib.metadata.version('kakeya')}")
        return 0
    if verb not in VERBS:
        near = difflib.get_close_matches(verb, VERBS, n=1)
        meant = f"did you mean {near[0]}?" if near else f"known: {', '.join(VERBS)}."
        print(f"unknown verb {verb!r}; {meant} See `kakeya-engine --help`.", file=sys.stderr)
        return 2
    if argv is None and verb in WITHOUT_TORCH:  # a process of its own: called with arguments, it is somebody else's
        importlib.import_module("engine.huggingface").leave_torch_out()
    module = importlib.import_module(VERBS[verb][0])
    return int(module.main(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main())
