"""The tables of `run.toml`, each with its keys, their limits and what `dump` writes behind them.

Reads and writes nothing. Imports pydantic, `layout`, `shapes` and `tomlfile`.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from andrea_rundir.layout import MAX_PARAMS, PRESETS, Shape
from andrea_rundir.shapes import MAX_STEP
from andrea_rundir.tomlfile import broken_rule, shown

NAME = r"^[A-Za-z0-9._-]+\Z"
STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, regex_engine="python-re")
_Count = Annotated[int, Field(ge=1, le=MAX_STEP)]
_CountOrNone = Annotated[int, Field(ge=0, le=MAX_STEP)]
_Positive = Annotated[float, Field(gt=0)]
_Beta = Annotated[float, Field(ge=0, lt=1)]


class RunSection(BaseModel):
    """Identity, machine, determinism."""

    model_config = STRICT
    name: str = Field("andrea", pattern=NAME, max_length=100, description="shown in the journal and on the page")
    id: str = Field("", pattern=r"^([0-9a-f]{32})?\Z", description="written by init; never an input of a stream")
    seed: int = Field(1337, ge=0, le=2**63 - 1, description="key of every random stream")
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda(:\d{1,3})?)\Z",
        description="auto | cpu | cuda | cuda:N; pinned by init",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto", description="auto | fp32 | bf16 | fp16; pinned by init"
    )
    deterministic: bool = Field(True, description="strict deterministic algorithms: a restart is bit for bit")
    threads: int = Field(0, ge=0, le=4096, description="CPU threads; 0 = all; pinned by init")
    compile: bool = Field(False, description="torch.compile")
    plan_wait: float = Field(30.0, ge=0, description="seconds to wait for the proxy's plan; 0 = never wait")

    @model_validator(mode="after")
    def _fp16_needs_cuda(self) -> Self:
        if self.device == "cpu" and self.precision == "fp16":
            raise broken_rule(
                "precision", "the CPU does not train in fp16", shown(self.precision), "fp32 or bf16 on cpu"
            )
        return self


class ModelConfig(BaseModel):
    """A preset, or all five numbers of a shape."""

    model_config = STRICT
    preset: str | None = Field(None, description=" | ".join(PRESETS) + "; or the five numbers of a shape")
    vocab_size: _Count | None = Field(None, description="tokens the model knows")
    d_model: _Count | None = Field(None, description="width; a multiple of n_heads and of 16")
    n_heads: _Count | None = Field(None, description="attention heads a layer")
    n_layers: _Count | None = Field(None, description="layers")
    context: _Count | None = Field(None, description="longest sequence, in tokens")

    @model_validator(mode="before")
    @classmethod
    def _default_preset(cls, given: object) -> object:
        return {"preset": "andrea-120m"} if given == {} else given

    @model_validator(mode="after")
    def _one_usable_shape(self) -> Self:
        numbers = [self.vocab_size, self.d_model, self.n_heads, self.n_layers, self.context]
        given = [number for number in numbers if number is not None]
        five = "vocab_size, d_model, n_heads, n_layers, context"
        if self.preset is not None:
            if given:
                raise broken_rule(
                    "preset", "a preset and numbers of a shape are given", shown(self.preset), f"preset, or {five}"
                )
            if self.preset not in PRESETS:
                raise broken_rule("preset", "no such preset", shown(self.preset), "one of " + ", ".join(PRESETS))
        elif len(given) < len(numbers):
            raise broken_rule("", "the shape is not complete", f"{len(given)} of 5 numbers", f"all of {five}")
        _check_shape(self.shape)
        return self

    @property
    def shape(self) -> Shape:
        """The five numbers that fix the model."""
        if self.preset is not None:
            return PRESETS[self.preset]
        assert self.vocab_size and self.d_model and self.n_heads and self.n_layers and self.context
        return Shape(self.vocab_size, self.d_model, self.n_heads, self.n_layers, self.context)


def _check_shape(shape: Shape) -> None:
    if shape.d_model % shape.n_heads:
        raise broken_rule(
            "n_heads",
            "the heads do not divide the width",
            shape.n_heads,
            f"a divisor of d_model = {shape.d_model}",
        )
    if shape.d_model % 16:
        raise broken_rule("d_model", "the width is not a multiple of 16", shape.d_model, "a multiple of 16")
    if shape.n_params > MAX_PARAMS:
        raise broken_rule(
            "",
            "the model has too many parameters",
            f"n_params = {shape.n_params:,}",
            f"at most {MAX_PARAMS:,}",
        )


class TokenizerConfig(BaseModel):
    """How text becomes tokens."""

    model_config = STRICT
    kind: Literal["bytes", "bpe"] = Field("bytes", description="bytes (256 + BOS) | bpe (trained by prepare)")
    path: str = Field("", description="a tokenizers JSON to use instead of training one (bpe)")

    @model_validator(mode="after")
    def _path_is_for_bpe(self) -> Self:
        if self.kind == "bytes" and self.path:
            raise broken_rule("path", "the bytes tokenizer has no file", shown(self.path), 'kind = "bpe", or no path')
        return self


class OptimizerConfig(BaseModel):
    """AdamW, its schedule and its batch."""

    model_config = STRICT
    lr: _Positive = Field(3e-4, description="learning rate after warm-up")
    min_lr: float = Field(3e-5, ge=0, description="learning rate at max_steps (cosine)")
    warmup_steps: _CountOrNone = Field(2000, description="linear warm-up")
    max_steps: _Count = Field(200_000, description="the run is finished after this step")
    betas: tuple[_Beta, _Beta] = Field((0.9, 0.999), strict=False, description="decay of Adam's m and v")
    eps: _Positive = Field(1e-8, description="Adam's epsilon")
    weight_decay: float = Field(0.1, ge=0, description="decoupled; all but the embeddings")
    grad_clip: _Positive = Field(1.0, description="limit of the global gradient norm")
    batch_size: _Count = Field(8, description="sequences a step")
    micro_batch: _CountOrNone = Field(0, description="sequences a forward pass; 0 = batch_size; divides it")
    loss_scale: _Positive = Field(4096.0, description="fixed scale of the fp16 loss")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.min_lr > self.lr:
            raise broken_rule("min_lr", "min_lr is above lr", self.min_lr, f"at most lr = {self.lr}")
        if self.warmup_steps > self.max_steps:
            raise broken_rule(
                "warmup_steps",
                "warm-up outlasts the run",
                self.warmup_steps,
                f"at most max_steps = {self.max_steps}",
            )
        if self.micro_batch and self.batch_size % self.micro_batch:
            raise broken_rule(
                "micro_batch",
                "micro_batch does not divide batch_size",
                self.micro_batch,
                f"a divisor of batch_size = {self.batch_size}",
            )
        return self

    @property
    def micro_batch_size(self) -> int:
        """Sequences a forward pass."""
        return self.micro_batch or self.batch_size


class CheckpointConfig(BaseModel):
    """The cadence and what is kept."""

    model_config = STRICT
    every: _Count = Field(100, description="steps between checkpoints")
    keep_last: int = Field(10, ge=2, description="newest checkpoints of the cadence that stay")
    keep_every: _CountOrNone = Field(0, description="steps whose multiples stay for ever; 0 = 100 cadences")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.keep_every % self.every:
            raise broken_rule(
                "keep_every",
                "keep_every is off the cadence",
                self.keep_every,
                f"a multiple of every = {self.every}",
            )
        return self

    @property
    def keep_every_steps(self) -> int:
        """Multiples of this many steps stay for ever."""
        return self.keep_every or 100 * self.every


class SamplesConfig(BaseModel):
    """The audit of every checkpoint."""

    model_config = STRICT
    tokens: _Count = Field(128, description="tokens a sample")
    prompts: tuple[str, ...] = Field((), strict=False, description="six texts; none = six openings of held-out text")
    temperature: _Positive = Field(0.8, description="of sampling")
    halt_after: _CountOrNone = Field(0, description="alarms in a row that halt the run; 0 = never")

    @model_validator(mode="after")
    def _six_prompts(self) -> Self:
        if len(self.prompts) not in (0, 6):
            raise broken_rule("prompts", "an audit has six prompts", f"{len(self.prompts)} prompts", "none or six")
        if not all(self.prompts):
            raise broken_rule("prompts", "a prompt is empty", list(self.prompts), "six texts")
        return self


class ProbeConfig(BaseModel):
    """Held-out bits per byte."""

    model_config = STRICT
    every: _Count = Field(1000, description="steps between probes; a multiple of the cadence")
    held_out: float = Field(0.01, gt=0, lt=1, description="share of each arm that is never trained on")


class GuardConfig(BaseModel):
    """What is done about a run that goes wrong slowly."""

    model_config = STRICT
    regressed: Literal["warn", "halt"] = Field("warn", description="3 % above the best for 2,000 steps: warn | halt")
    spike: Literal["warn", "skip"] = Field("warn", description="a step whose loss jumps: warn | skip")
