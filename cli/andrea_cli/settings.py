"""A run's configuration as verbs make it: values replaced and checked again, the machine pinned, `--set` obeyed.

Writes no file. Asks the trainer about devices, in a process of its own; imports `andrea_rundir`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from andrea_rundir import config, tomlfile
from andrea_rundir.faults import EXIT_DEVICE, BadConfig, NoDevice, Usage

PINNED = ("run.device", "run.precision", "run.threads")

FIXED = {
    "model": "the weights have this shape",
    "tokenizer": "the weights were trained with this tokenizer",
    "probe.held_out": "it is cut out of the shards",
    "run.id": "every run has an id of its own",
}
"""Sections and keys that a checkpoint cannot do without as they are, and why."""


def replaced(settings: config.RunConfig, values: Mapping[str, object], where: str = "run.toml") -> config.RunConfig:
    """The configuration with other values, by `section.key`, checked again; `where` names them in errors."""
    tables = settings.model_dump(exclude_none=True)
    for name, value in values.items():
        section, _, key = name.rpartition(".")
        (tables.setdefault(section, {}) if section else tables)[key] = value
    return config.build(tables, where)


def name_of(root: Path) -> str:
    """What a run in that directory is called where nobody gave it a name."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in root.name)[:100]


def identified(settings: config.RunConfig) -> config.RunConfig:
    """The configuration of a new run: with an id that no other has."""
    return replaced(settings, {"run.id": uuid.uuid4().hex})


def pinned(settings: config.RunConfig) -> config.RunConfig:
    """Device, precision and threads as the trainer would choose them here; asked of it, since it knows torch."""
    wanted = settings.run
    if wanted.device == "cpu" and wanted.precision != "auto" and wanted.threads:
        return settings  # nothing to resolve, and torch takes seconds to load
    options = ["--device", wanted.device, "--precision", wanted.precision, "--threads", str(wanted.threads)]
    asked = subprocess.run(
        [sys.executable, "-P", "-m", "andrea_train.device", *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode != 0:
        fault = NoDevice if asked.returncode == EXIT_DEVICE else BadConfig
        raise fault(
            "the trainer cannot say which device it would use",
            where=f"[run] device = {wanted.device}, precision = {wanted.precision}",
            found=asked.stderr.strip() or f"exit code {asked.returncode}",
        )
    answer: dict[str, object] = json.loads(asked.stdout)
    return replaced(settings, {f"run.{name}": value for name, value in answer.items()})


def forked(settings: config.RunConfig, wishes: Sequence[str], step: int) -> config.RunConfig:
    """What a run goes on with after `step`, given each `section.key=value` of `wishes`.

    Usage for what is no such wish; BadConfig for an unknown key, a value that cannot be used, or one that the
    checkpoint or the history up to it cannot be used with.
    """
    new = replaced(settings, dict(map(_parsed, wishes)), "--set")
    changes = config.differences(settings.model_dump(mode="json"), new.model_dump(mode="json"))
    for name, (old, value) in changes.items():
        why = FIXED.get(name) or FIXED.get(name.partition(".")[0])
        if why is not None:
            raise _refused(name, f"{name} cannot be changed in a fork", tomlfile.shown(value), f"{old}: {why}")
    if new.round_steps != settings.round_steps:
        raise _refused(
            "checkpoint.every",
            "another cadence would change the rounds in which this history was planned",
            f"{new.checkpoint.every}: rounds of {new.round_steps} steps",
            f"a cadence with rounds of {settings.round_steps} steps, as {settings.checkpoint.every} has",
        )
    if step >= new.optimizer.max_steps:
        raise _refused(
            "optimizer.max_steps",
            "the checkpoint is at the end of the run already",
            f"step {step:,} of {new.optimizer.max_steps:,}",
            "a max_steps past the checkpoint's step",
            "--set optimizer.max_steps=NUMBER",
        )
    return pinned(new) if changes.keys() & set(PINNED) else new


def _parsed(wish: str) -> tuple[str, object]:
    """Name and value: a TOML value, or a word that needs no quotes."""
    name, equals, text = wish.partition("=")
    name, text = name.strip(), text.strip()
    if not (equals and name and text) or name.count(".") > 1:
        raise Usage("--set takes a key and a value", found=wish, expected="section.key=value, as in optimizer.lr=1e-4")
    try:
        return name, tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return name, text


def _refused(name: str, what: str, found: str, expected: str, todo: str = "") -> BadConfig:
    return BadConfig(what, where=f"--set {name}", found=found, expected=expected, todo=todo)
