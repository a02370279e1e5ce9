"""What a run is fed: `policy.toml`, its arms, their limits and phases.

`init` and `fork` write the first file, the proxy every later one.
Imports pydantic and the rest of this package.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from andrea_rundir import tomlfile
from andrea_rundir.faults import BadConfig
from andrea_rundir.sections import NAME
from andrea_rundir.shapes import MAX_STEP
from andrea_rundir.tomlfile import broken_rule, shown

TOLERANCE = 1e-9
"""Sums of shares are compared up to this."""

_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, regex_engine="python-re")
_Share = Annotated[float, Field(ge=0, le=1)]
_Name = Annotated[str, Field(pattern=NAME, max_length=100)]


class Arm(BaseModel):
    """A source of text and the limits of its share of pulls."""

    model_config = _STRICT
    path: str | list[str]
    format: Literal["auto", "text", "jsonl", "parquet"] = "auto"
    errors: Literal["strict", "replace"] = "strict"
    floor: _Share = 0.0
    cap: _Share = 1.0
    prior: float = Field(1.0, gt=0)
    max_epochs: float | None = Field(None, gt=0)

    @field_validator("path", mode="before")
    @classmethod
    def _file_names(cls, given: object) -> object:
        paths = given if isinstance(given, list) else [given]
        if not paths or not all(isinstance(path, str) and path and "\0" not in path for path in paths):
            raise broken_rule("", "a source is a path or a list of paths", given, "a file, folder or glob")
        return given


class Phase(BaseModel):
    """A stretch of steps with arms and limits of its own."""

    model_config = _STRICT
    name: _Name
    until_step: Annotated[int, Field(ge=1, le=MAX_STEP)] | None = None
    arms: list[str] | None = None
    floor: dict[str, _Share] = {}
    cap: dict[str, _Share] = {}


@dataclass(frozen=True)
class Limits:
    """What holds at a step: the active arms, by name, with floors, caps and priors."""

    phase: str
    """The phase's name; "" when none is in force."""
    arms: tuple[str, ...]
    floors: dict[str, float]
    caps: dict[str, float]
    priors: dict[str, float]


class Policy(BaseModel):
    """The whole of `policy.toml`."""

    model_config = _STRICT
    learner: Literal["slope", "ucb1", "uniform", "fixed"] = "slope"
    arms: dict[_Name, Arm] = Field(min_length=1)
    phases: list[Phase] = []

    @model_validator(mode="after")
    def _usable(self) -> Self:
        for index, phase in enumerate(self.phases):
            self._check_phase(index, phase)
        for limits, key in self._stretches():
            _check_feasible(limits, key)
        return self

    def limits(self, step: int) -> Limits:
        """What holds at a step (counted from 1); a phase lasts through its `until_step`."""
        for phase in self.phases:
            if phase.until_step is None or step <= phase.until_step:
                return self._limits_of(phase)
        return self._limits_of(None)

    def check_rounds(self, round_steps: int, where: str = "policy.toml") -> None:
        """BadConfig when a phase ends inside a round of so many steps, naming the nearest end that fits."""
        for index, phase in enumerate(self.phases):
            end = phase.until_step
            if end is not None and end % round_steps:
                near = max(round_steps, (end + round_steps // 2) // round_steps * round_steps)
                raise BadConfig(
                    f"phase {phase.name} ends inside a round of {round_steps} steps",
                    where=f"{where}: phases.{index}.until_step",
                    found=str(end),
                    expected=f"a multiple of {round_steps}; the nearest is {near}",
                )

    def _limits_of(self, phase: Phase | None) -> Limits:
        active = sorted(self.arms if phase is None or phase.arms is None else phase.arms)
        floor, cap = (phase.floor, phase.cap) if phase is not None else ({}, {})
        return Limits(
            phase="" if phase is None else phase.name,
            arms=tuple(active),
            floors={name: floor.get(name, self.arms[name].floor) for name in active},
            caps={name: cap.get(name, self.arms[name].cap) for name in active},
            priors={name: self.arms[name].prior for name in active},
        )

    def _stretches(self) -> list[tuple[Limits, str]]:
        """Every set of limits that will ever hold, with the key to name in an error."""
        found = [(self._limits_of(phase), f"phases.{i}") for i, phase in enumerate(self.phases)]
        if not self.phases or self.phases[-1].until_step is not None:
            found.append((self._limits_of(None), "arms"))
        return found

    def _check_phase(self, index: int, phase: Phase) -> None:
        key = f"phases.{index}"
        if phase.arms is not None and (not phase.arms or len(set(phase.arms)) < len(phase.arms)):
            raise broken_rule(
                f"{key}.arms",
                f"phase {phase.name} needs arms, each once",
                phase.arms,
                "names of arms, each once",
            )
        for field, names in (("arms", phase.arms or []), ("floor", phase.floor), ("cap", phase.cap)):
            for name in names:
                self._check_arm(f"{key}.{field}", phase, name)
        last = index == len(self.phases) - 1
        if phase.until_step is None and not last:
            raise broken_rule(f"{key}.until_step", f"phase {phase.name} never ends", "no until_step", "a step")
        before = self.phases[index - 1].until_step if index else 0
        if phase.until_step is not None and before is not None and phase.until_step <= before:
            raise broken_rule(
                f"{key}.until_step", "phases are not in order", phase.until_step, f"a step after {before}"
            )
        if phase.name in [other.name for other in self.phases[:index]]:
            raise broken_rule(f"{key}.name", "two phases have one name", shown(phase.name), "a name of its own")

    def _check_arm(self, key: str, phase: Phase, name: str) -> None:
        if name not in self.arms:
            near = tomlfile.nearest(name, self.arms)
            expected = f"did you mean {near}?" if near else "one of " + ", ".join(sorted(self.arms))
            raise broken_rule(key, f"phase {phase.name} names an unknown arm", shown(name), expected)
        if phase.arms is not None and name not in phase.arms:
            raise broken_rule(
                key,
                f"phase {phase.name} limits an arm that it masks",
                shown(name),
                "one of " + ", ".join(phase.arms),
            )


def _check_feasible(limits: Limits, key: str) -> None:
    """Floors under caps, and sum of floors <= 1 <= sum of caps."""
    during = f"phase {limits.phase}" if limits.phase else "all arms"
    for name in limits.arms:
        if limits.floors[name] > limits.caps[name]:
            raise broken_rule(
                f"{key}.{name}" if key == "arms" else key,
                f"the floor of {name} is above its cap ({during})",
                f"floor {limits.floors[name]:g}, cap {limits.caps[name]:g}",
                "floor <= cap",
            )
    floors, caps = math.fsum(limits.floors.values()), math.fsum(limits.caps.values())
    if floors > 1 + TOLERANCE:
        raise broken_rule(key, f"the floors sum to more than 1 ({during})", f"{floors:g}", "at most 1")
    if caps < 1 - TOLERANCE:
        raise broken_rule(key, f"the caps sum to less than 1 ({during})", f"{caps:g}", "at least 1")


_KEYS = {
    "": tuple(Policy.model_fields),
    "arms.*": tuple(Arm.model_fields),
    "phases.*": tuple(Phase.model_fields),
}


def load(path: Path) -> Policy:
    """Read and check a file; relative sources start at its folder. BadConfig names key, found, expected."""
    return parse(tomlfile.read(path), str(path), path.parent)


def parse(text: str, where: str, folder: Path) -> Policy:
    """Check a text; `where` names it in errors, relative sources start at `folder`."""
    tables = tomlfile.tables(text, where)
    try:
        policy = Policy.model_validate(tables)
    except ValidationError as error:
        raise tomlfile.fault(error, where, _KEYS) from None
    arms = {name: _absolute(arm, folder, f"{where}: arms.{name}.path") for name, arm in policy.arms.items()}
    return policy.model_copy(update={"arms": arms})


def _absolute(arm: Arm, folder: Path, where: str) -> Arm:
    def resolved(path: str) -> str:
        found = str(folder.absolute() / path)
        try:
            os.fsencode(found).decode("utf-8")
        except UnicodeDecodeError:
            raise BadConfig("a path is not UTF-8", where=where, found=repr(found), expected="UTF-8") from None
        return found

    paths = [resolved(path) for path in arm.path] if isinstance(arm.path, list) else resolved(arm.path)
    return arm.model_copy(update={"path": paths})


def dump(policy: Policy) -> str:
    """The file's text; `parse` gives the same policy back."""
    blocks = [f"learner = {tomlfile.quoted(policy.learner)}"]
    for name, arm in policy.arms.items():
        blocks.append(_table(f"[arms.{tomlfile.bare(name)}]", arm.model_dump(exclude_none=True)))
    for phase in policy.phases:
        given = phase.model_dump(exclude_none=True, exclude_defaults=True)
        blocks.append(_table("[[phases]]", given))
    return "\n\n".join(blocks) + "\n"


def _table(title: str, values: dict[str, Any]) -> str:
    return "\n".join([title, *(f"{key} = {tomlfile.quoted(value)}" for key, value in values.items())])


def policy_id(text: str, start: int) -> str:
    """The id of a policy whose text is in force after step `start`: going A, B, A never revives A's."""
    return f"{start}-{hashlib.sha256(text.encode('utf-8')).hexdigest()[:12]}"
