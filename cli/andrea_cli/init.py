"""Make a run directory: run.toml, policy.toml and the token shards, checked, or nothing at all.

--demo trains a small model on text that every Python brings along. --from starts from a checkpoint made elsewhere:
history then begins at its step. Device, precision and thread count are resolved now and pinned. Relative sources start
at the policy file's folder and are stored absolute. Exits 0 when the run is made; 1 when the place is taken; 78 when
configuration, policy, a source or the checkpoint cannot be used.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from andrea_cli import demo, origins, output
from andrea_cli.newdir import building, vacant
from andrea_cli.prepare import lines as arm_lines
from andrea_cli.prepare import prepare
from andrea_cli.settings import identified, name_of, pinned, replaced
from andrea_cli.use import start_command
from andrea_corpus.ledger import record
from andrea_corpus.sources import resolve_all
from andrea_rundir import config, policy
from andrea_rundir.faults import EXIT_OK, Usage
from andrea_rundir.names import RunDir, locate
from andrea_rundir.publish import publish

OWNERS = True


def add_arguments(parser: ArgumentParser) -> None:
    """RUN, --demo or --config and --policy, --from, --dry-run."""
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--demo", action="store_true", help="a small model, real text, no download")
    parser.add_argument("--config", metavar="FILE", type=Path, help="a run.toml; every key has a default")
    parser.add_argument("--policy", metavar="FILE", type=Path, help="a policy.toml: the arms, their limits, phases")
    parser.add_argument(
        "--from", metavar="FILE.bin", type=Path, dest="origin", help="a checkpoint to start from, of the same shape"
    )
    parser.add_argument("--dry-run", action="store_true", help="check all but the texts themselves, make nothing")


@dataclass(frozen=True)
class _Wish:
    """What is to be made. `texts` are the demo's."""

    settings: config.RunConfig
    rules: policy.Policy
    texts: demo.Texts | None


def run(args: Namespace) -> int:
    """Make it, say what it is."""
    if args.demo == (args.config is not None or args.policy is not None) or (
        not args.demo and (args.config is None or args.policy is None)
    ):
        raise Usage("what should the run be?", expected="--demo, or --config FILE and --policy FILE")
    root = vacant(locate(args.run).root)
    wish = _demo(root) if args.demo else _from_files(args, root)
    origin = None if args.origin is None else origins.check(args.origin, wish.settings)
    settings = identified(pinned(wish.settings))
    if args.dry_run:
        sources = {} if args.demo else {arm: len(files) for arm, files in resolve_all(wish.rules.arms).items()}
        output.show(
            args, _facts(root, settings, {}) | {"dry_run": True, "files": sources}, _plan(root, settings, sources)
        )
        return EXIT_OK
    with building(root) as scratch:
        arms = _fill(RunDir(scratch), root, settings, wish)
        if origin is not None:
            origins.bring(origin, RunDir(scratch))
    facts, lines = _facts(root, settings, arms), _lines(root, settings, arms)
    if origin is not None:
        facts["from"] = asdict(origin) | {"path": str(origin.path)}
        lines.insert(1, f"goes on from {origin.path}, step {origin.step:,}")
    output.show(args, facts, lines)
    return EXIT_OK


def _demo(root: Path) -> _Wish:
    texts = demo.gather()
    for arm in demo.LIMITS.keys() - texts.keys():
        _warn(f"this Python came without enough text for the arm {arm}: it is left out")
    return _Wish(demo.settings(), demo.rules(texts, _texts(root)), texts)


def _texts(root: Path) -> Path:
    return root / "data" / "demo"


def _from_files(args: Namespace, root: Path) -> _Wish:
    settings, rules = config.load(args.config), policy.load(args.policy)
    rules.check_rounds(settings.round_steps, str(args.policy))
    if settings.round_steps == 1:
        _warn(f"[checkpoint] every = {settings.checkpoint.every} has no divisor up to 20: each step is a round")
    if settings.tokenizer.path:
        path = args.config.absolute().parent / settings.tokenizer.path
        settings = replaced(settings, {"tokenizer.path": str(path)})
    if "name" not in settings.run.model_fields_set:
        settings = replaced(settings, {"run.name": name_of(root)})
    return _Wish(settings, rules, None)


def _fill(run: RunDir, root: Path, settings: config.RunConfig, wish: _Wish) -> dict[str, dict[str, Any]]:
    """Write everything into the directory that will be renamed to `root`; the arms."""
    publish(run.run_toml, config.dump(settings).encode())
    publish(run.policy_toml, policy.dump(wish.rules).encode())
    if wish.texts is None:
        return prepare(run, settings, wish.rules)
    run.data.mkdir(mode=0o750)
    demo.write(wish.texts, _texts(run.root))
    arms = prepare(run, settings, demo.rules(wish.texts, _texts(run.root)))
    # The texts move with the directory: the shards are those of the policy that names them where they will be.
    record(run, wish.rules, {arm: about["fingerprint"] for arm, about in arms.items()})
    return arms


def _facts(root: Path, settings: config.RunConfig, arms: dict[str, dict[str, Any]]) -> dict[str, object]:
    return {
        "run": str(root),
        "id": settings.run.id,
        "name": settings.run.name,
        "device": settings.run.device,
        "precision": settings.run.precision,
        "threads": settings.run.threads,
        "n_params": settings.shape.n_params,
        "arms": arms,
    }


def _plan(root: Path, settings: config.RunConfig, sources: dict[str, int]) -> list[str]:
    """What a dry run says."""
    return [f"would make {root}", _model(settings), *(f"{arm}: {count:,} files" for arm, count in sources.items())]


def _model(settings: config.RunConfig) -> str:
    run, model = settings.run, settings.model.preset or "model of its own shape"
    threads = f", {output.counted(run.threads, 'thread')}" if run.device == "cpu" else ""
    steps = f"{settings.optimizer.max_steps:,} steps on {run.device} in {run.precision}{threads}"
    return f"{model}, {settings.shape.n_params:,} parameters, {steps}"


def _lines(root: Path, settings: config.RunConfig, arms: dict[str, dict[str, Any]]) -> list[str]:
    return [
        f"made {root}",
        _model(settings),
        *arm_lines(arms),
        f"train it: {start_command(root)}",
    ]


def _warn(text: str) -> None:
    print(f"andrea: warning: {text}", file=sys.stderr)
