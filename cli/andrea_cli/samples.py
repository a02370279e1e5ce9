"""Show the texts that a run's model wrote at its checkpoints, newest first, and which of them run in circles.

Every checkpoint is audited: six prompts, one text each. Reads only. Exits 0; 1 when there is no run, or no audit of the
step asked for.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from andrea_cli import facts, output
from andrea_cli.arguments import count
from andrea_rundir import events
from andrea_rundir.faults import EXIT_OK, Refused
from andrea_rundir.names import RunDir, checkpoint_name, locate


def add_arguments(parser: ArgumentParser) -> None:
    """RUN, --last, --step."""
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--last", metavar="N", type=count, default=1, help="so many audits (default 1)")
    parser.add_argument("--step", metavar="STEP", type=int, help="the audit of this step")


def run(args: Namespace) -> int:
    """Print them."""
    directory = locate(args.run)
    facts.settings(directory)
    found = audits(directory, args.last, args.step)
    if args.step is not None and not found:
        raise Refused(f"no audit of step {args.step}", where=str(directory.events), expected="a step with a checkpoint")
    output.show(args, {"run": str(directory.root), "audits": found}, _lines(found))
    return EXIT_OK


def audits(run: RunDir, last: int, step: int | None) -> list[dict[str, Any]]:
    """The newest `last` audits, or the one of `step`; a replay's audit replaces the first one of its step."""
    found: dict[int, dict[str, Any]] = {}
    for event in events.read_back(run.events):
        if len(found) >= (last if step is None else 1):
            break
        if event["event"] != "audit" or not {"score", "alarm", "looped", "samples"} <= event.keys():
            continue
        at = event["step"]
        if at in found or step not in (None, at):
            continue
        found[at] = {name: event.get(name) for name in ("step", "time", "score", "alarm", "looped", "samples")}
        found[at]["checkpoint"] = _on_disk(run, at)
    return list(found.values())


def _on_disk(run: RunDir, step: int) -> str | None:
    """The file that wrote these texts, if it is still there."""
    places = (run.checkpoint(step), run.kept / checkpoint_name(step))
    return next((str(path) for path in places if path.is_file()), None)


def _lines(found: list[dict[str, Any]]) -> list[str]:
    if not found:
        return ["no audits yet: the first comes with the first checkpoint"]
    lines = []
    for audit in found:
        alarm = ", ALARM" if audit["alarm"] else ""
        kept = audit["checkpoint"] or "no longer on disk"
        lines.append(f"step {audit['step']:,}: score {audit['score']:g}{alarm}, {kept}")
        for sample in audit["samples"]:
            verdict = f"[runs in circles: {sample.get('why')}] " if sample["looped"] else ""
            lines.append(f"  {verdict}{_one_line(sample['prompt'])} | {_one_line(sample['text'])}")
    return lines


def _one_line(text: str) -> str:
    """Line ends and control characters as escapes: a sample must not move the cursor."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
