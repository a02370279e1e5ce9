"""Fresh readers on what a power cut left: each complaint is a promise of docs/reliability.md that was broken.

First the directory as it lies there, file by file; then as the trainer's start reads it; then a proxy's desk opens,
repairs, takes a few turns and closes, and the sidecars are looked at again.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterator
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from andrea_proxy import state
from andrea_proxy.desk import Desk
from andrea_proxy.rebuild import rebuild
from andrea_rundir import config, events, loading, planfile, publish, sidecars
from andrea_rundir.config import RunConfig
from andrea_rundir.faults import Fault
from andrea_rundir.layout import Shape
from andrea_rundir.loading import Choice
from andrea_rundir.names import RunDir, checkpoint_step
from andrea_train.larder import Larder
from andrea_train.resume import place, record
from crash.disk import Tree
from crash.explorer import State
from crash.scenario import BRANCH, RUN
from crash.truth import Promises, Truth, timeless

TURNS = 3
IN_PLACE = re.compile(r"(events/.*|plan\.jsonl|\.loss\.json|train\.lock|proxy\.lock)")
"""Files that are not replaced but written to: looked at line by line, or of no consequence."""
ASKED = re.compile(r"policy\.next\.toml(\.bad)?")
"""A request is the operator's until it is claimed."""
REPAIRS = re.compile(
    r"\.loss\.json was torn|plan\.jsonl: its last line was torn|plan\.jsonl (is damaged|lacked lines)"
    r"|a line of the events cannot be read|a pivot was refused"
)
"""What a proxy may say after a power cut."""


def lay(tree: Tree, folder: Path) -> None:
    """Puts a tree on a real file system, in place of what was there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path, content in tree.items():
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)


class Readers:
    """Look at one state after another, laid out in `folder`. What a proxy makes of equal files is looked at once."""

    def __init__(self, folder: Path, truth: Truth) -> None:
        self._folder, self._truth = folder, truth
        self._proxies: dict[object, list[str]] = {}

    def complaints(self, state: State) -> list[str]:
        """Everything that is wrong with what was found."""
        tree, promised = state.tree, state.promised
        if RUN not in tree:
            return ["the run was made, and is gone"] if "made" in promised.told else []
        lay(tree, self._folder)
        run, truth = RunDir(self._folder / RUN), self._truth
        found = [*_files(tree, truth, promised), *_events(run, truth), *_branch(tree, truth, promised)]
        try:
            settings = config.load(run.run_toml)
            choice = _choose(run, settings.shape)
            found += _trainer(run, settings, choice, truth, promised)
            found += _cache(run, truth)
            step = choice.step if choice is not None else 0
            if (key := (step, _of_a_proxy(tree))) not in self._proxies:
                self._proxies[key] = list(_proxy(run, settings, step, truth))
            found += self._proxies[key]
        except Fault as fault:
            found.append(f"nothing can start: {'; '.join(fault.lines())}")
        except Exception as error:  # whatever a reader raises, it should not have
            found.append(f"a reader raised {error!r}")
        return found


def _of_a_proxy(tree: Tree) -> tuple[object, ...]:
    """What a proxy sees of a run: no temporary files, which are swept, and of checkpoints only that they are there."""
    seen = [path for path in tree if path.startswith(f"{RUN}/") and not publish.is_temporary(path.rsplit("/", 1)[-1])]
    return tuple((path, None if checkpoint_step(path.rsplit("/", 1)[-1]) else tree[path]) for path in sorted(seen))


def _files(tree: Tree, truth: Truth, promised: Promises) -> Iterator[str]:
    """Replaced files are wholly before or wholly after a change, and what a run was made of is there."""
    inside = {path.removeprefix(f"{RUN}/"): content for path, content in tree.items() if path.startswith(f"{RUN}/")}
    lines = (inside.get("SHA256SUMS") or b"").decode(errors="replace").splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    for path, content in inside.items():
        name = path.rsplit("/", 1)[-1]
        if content is None or IN_PLACE.fullmatch(path) or ASKED.fullmatch(path) or publish.is_temporary(name):
            continue
        step = checkpoint_step(name)
        if step is not None and content != truth.checkpoints[step]:
            yield f"{path} is torn"
        elif step is None and content not in truth.whole[path]:
            yield f"{path} is neither before nor after a change: {content[:60]!r}"
        if step is not None and path == name and sums.get(name) != sha256(truth.checkpoints[step]).hexdigest():
            yield f"{path} has no digest line"
    for path, content in truth.at_first.items():
        if path == "run.toml" or path.startswith("data/"):
            if inside.get(path) != content:
                yield f"the run is there, its {path} is not whole"
        elif path not in inside:
            yield f"the run is there, its {path} is gone"
    if "kept" in promised.told and not any(path.startswith("kept/") and inside[path] for path in inside):
        yield "a checkpoint was kept, and is not"
    yield from _archive(inside, pivoted=inside.get("policy.toml") != truth.at_first["policy.toml"])


def _branch(tree: Tree, truth: Truth, promised: Promises) -> Iterator[str]:
    """A fork is there whole or not at all."""
    if BRANCH in tree:
        yield from (f"{path} is not whole" for path, content in truth.branch.items() if tree.get(path, b"") != content)
    elif "forked" in promised.told:
        yield "the run was forked, and the fork is gone"


def _archive(inside: Tree, *, pivoted: bool) -> Iterator[str]:
    """An archive with its last file has all of them, and the policy is replaced only when there is one."""
    done = [path.rsplit("/", 1)[0] for path in inside if re.fullmatch(r"archive/step_\d+/policy.toml", path)]
    for folder in done:
        names = (".state.json", ".samples.json", folder.rsplit("/", 1)[-1] + ".bin")
        yield from (f"{folder} is complete without {name}" for name in names if f"{folder}/{name}" not in inside)
    if pivoted and not done:
        yield "the policy was replaced, the one before is not archived"


def _events(run: RunDir, truth: Truth) -> Iterator[str]:
    """No event is read that was never written."""
    for path in events.segments(run.events):
        for line in path.read_bytes().split(b"\n")[:-1]:
            if line in truth.event_lines:
                continue
            try:
                made_up = isinstance(json.loads(line), dict)
            except ValueError:
                continue
            if made_up:
                yield f"{path.name} tells what never happened: {line[:80]!r}"


def _trainer(
    run: RunDir, settings: RunConfig, choice: Choice | None, truth: Truth, promised: Promises
) -> Iterator[str]:
    """What a start would go on from: at least what was promised, whole, with everything that the file cannot hold."""
    step = choice.step if choice is not None else -1
    if step < promised.checkpoint:
        yield f"checkpoint {promised.checkpoint} was announced, a start would go on from {step}"
    if choice is None:
        return
    yield from (f"{passed.path.name} would be passed over: {passed.reason}" for passed in choice.passed)
    past = record(run.events, step)
    here = place(run, past, step, round_steps=settings.round_steps, batch_size=settings.optimizer.batch_size)
    snapshot = truth.snapshots[step]
    if past.snapshot is None or timeless(past.snapshot) != timeless(snapshot):
        yield f"the events do not say where the arms stood at checkpoint {step}"
    elif here.cursors != snapshot["cursors"] or here.credits != snapshot["credits"]:
        yield f"a start from checkpoint {step} would feed other windows"
    recorded = {e["step"]: timeless(e) for e in events.read(run.events) if e["event"] == "step"}
    missing = [s for s in range(1, step + 1) if recorded.get(s) != timeless(truth.steps[s])]
    if missing:
        yield f"checkpoint {step} is there, the events of steps {missing} are not"
    larder = Larder(run, context=settings.shape.context, round_steps=settings.round_steps, hear=lambda: None)
    larder.first(here.round, past.policy)


def _choose(run: RunDir, shape: Shape) -> Choice | None:
    return loading.choose(run, lambda start, piece: None, n_params=shape.n_params)


def _cache(run: RunDir, truth: Truth) -> Iterator[str]:
    """`.state.json` relies on nothing that may be gone."""
    content = sidecars.load(run.state)
    if content is None:
        return
    mark = state.vouched(content)
    if mark is None or run.loss.read_bytes()[: mark.size] != truth.loss[: mark.size]:
        yield f".state.json vouches for bytes of .loss.json that are not durable: {mark}"
    segment, offset = content["events"]["segment"], content["events"]["offset"]
    if offset and not any(int(path.stem) == segment for path in events.segments(run.events)):
        yield f".state.json has read segment {segment} of the events, which is gone: its number will be given again"


def _proxy(run: RunDir, settings: RunConfig, step: int, truth: Truth) -> Iterator[str]:
    """A desk opens, repairs, works, closes; all up to `step`, that a start would go on from, is on record then."""
    said: list[str] = []
    publish.sweep(run.root)
    desk = Desk(run, settings, _listener(said), clock=count().__next__)
    for _ in range(TURNS):
        desk.turn()
    desk.close()
    yield from (f"the proxy says: {text}" for text in said if not REPAIRS.match(text))
    found = {entry["step"]: timeless(entry) for entry in json.loads(run.loss.read_bytes())}
    yield from (f"entry {step} is not what happened" for step in found if found[step] != truth.entries[step])
    if missing := set(range(1, step + 1)) - found.keys():
        yield f".loss.json lacks the steps {sorted(missing)}, checkpoint {step} is there"
    yield from _plan(run, truth)
    if different := rebuild(run, settings).differences:
        yield f".state.json is not what history gives: {different}"
    texts = [line.policy_text for line in planfile.first_lines(run.plan)]
    held = [path.read_text(errors="replace") for path in (run.policy_toml, run.policy_pending) if path.exists()]
    if texts and texts[-1] not in held:
        yield "the policy in force is neither in policy.toml nor pending"


def _plan(run: RunDir, truth: Truth) -> Iterator[str]:
    """Every line of a round under the policy that it had is the line that it had."""
    known = {key(json.loads(line)): json.loads(line) for line in truth.plan_lines}
    for line in run.plan.read_bytes().split(b"\n")[:-1]:
        plan = json.loads(line)
        plan.pop("policy_text", None)
        was = {name: value for name, value in known.get(key(plan), plan).items() if name != "policy_text"}
        if plan != was:
            yield f"round {plan['round']} of policy {plan['policy']} is planned differently"


def key(plan: dict[str, Any]) -> tuple[int, str]:
    """Round and policy."""
    return plan["round"], plan["policy"]


def _listener(said: list[str]) -> logging.Logger:
    """A logger whose warnings go into `said`."""
    log = logging.Logger("desk")

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING:
                said.append(record.getMessage())

    log.addHandler(Listener())
    return log
