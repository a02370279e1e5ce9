"""What is trained: `run.toml`, read strictly and written back with a comment a key.

`init` and `fork` write the file; everyone else reads it. Imports pydantic and the rest of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from andrea_rundir import tomlfile
from andrea_rundir.faults import BadConfig
from andrea_rundir.layout import Shape
from andrea_rundir.plan import MAX_ROUND
from andrea_rundir.sections import (
    STRICT,
    CheckpointConfig,
    GuardConfig,
    ModelConfig,
    OptimizerConfig,
    ProbeConfig,
    RunSection,
    SamplesConfig,
    TokenizerConfig,
)
from andrea_rundir.tomlfile import broken_rule


class RunConfig(BaseModel):
    """The whole of `run.toml`; every key has a default."""

    model_config = STRICT
    run: RunSection = Field(default_factory=lambda: RunSection.model_validate({}))
    model: ModelConfig = Field(default_factory=lambda: ModelConfig.model_validate({}))
    tokenizer: TokenizerConfig = Field(default_factory=lambda: TokenizerConfig.model_validate({}))
    optimizer: OptimizerConfig = Field(default_factory=lambda: OptimizerConfig.model_validate({}))
    checkpoint: CheckpointConfig = Field(default_factory=lambda: CheckpointConfig.model_validate({}))
    samples: SamplesConfig = Field(default_factory=lambda: SamplesConfig.model_validate({}))
    probe: ProbeConfig = Field(default_factory=lambda: ProbeConfig.model_validate({}))
    guard: GuardConfig = Field(default_factory=lambda: GuardConfig.model_validate({}))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        every, vocabulary = self.checkpoint.every, self.shape.vocab_size
        if self.probe.every % every:
            raise broken_rule("probe.every", "the probe is off the cadence", self.probe.every, f"a multiple of {every}")
        if self.tokenizer.kind == "bytes" and vocabulary < 257:
            raise broken_rule(
                "model.vocab_size",
                "the model is too small for its tokenizer",
                vocabulary,
                "at least 257 for bytes",
            )
        return self

    @property
    def shape(self) -> Shape:
        """The model's five numbers."""
        return self.model.shape

    @property
    def round_steps(self) -> int:
        """Steps in a round of the plan: the largest divisor of the cadence up to 20."""
        return next(b for b in range(MAX_ROUND, 0, -1) if self.checkpoint.every % b == 0)


_SECTIONS = {title: type(section) for title, section in RunConfig.model_validate({})}
_KEYS = {"": tuple(_SECTIONS), **{title: tuple(section.model_fields) for title, section in _SECTIONS.items()}}


def load(path: Path) -> RunConfig:
    """Read and check a file; BadConfig naming file, key, found and expected."""
    return parse(tomlfile.read(path), str(path))


def parse(text: str, where: str) -> RunConfig:
    """Check a text; `where` names it in errors."""
    return build(tomlfile.tables(text, where), where)


def build(tables: Mapping[str, object], where: str) -> RunConfig:
    """Check tables that are already parsed; BadConfig as in `load`."""
    try:
        return RunConfig.model_validate(tables)
    except ValidationError as error:
        fault: BadConfig = tomlfile.fault(error, where, _KEYS)
        raise fault from None


def dump(config: RunConfig) -> str:
    """The file's text, a comment a key; `parse` gives the same configuration back."""
    blocks = []
    for title in RunConfig.model_fields:
        section: BaseModel = getattr(config, title)
        lines = [f"[{title}]"]
        for key, field in type(section).model_fields.items():
            value = getattr(section, key)
            if value is not None:
                lines.append(f"{f'{key} = {tomlfile.quoted(value)}':<31} # {field.description}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What two configurations, as JSON has them, do not have in common: both values, None for none, by section.key."""
    return {
        f"{section}.{key}": (old, new)
        for section in {**one, **other}
        for key in {**one.get(section, {}), **other.get(section, {})}
        if (old := one.get(section, {}).get(key)) != (new := other.get(section, {}).get(key))
    }
