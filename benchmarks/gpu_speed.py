"""Tokens a second on a CUDA card: our step beside the plain loop's, in one process, a few steps of each in turn.

    python benchmarks/gpu_speed.py          # part of `make gpu-check`

Both sides take the same windows from the host, read their loss back every step, and work in the same precision. Ours
runs twice, in deterministic mode and not; the plain loop never does.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median

import pairs
from apart import apart, main
from publish import shape_of

from andrea_rundir.layout import Shape

BATCH, STEPS, ROUNDS, SCALE = 8, 10, 3, 4096.0
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "RTX 4090": 165e12, "RTX 3090": 71e12}
"""Dense bf16 operations a second with float32 sums, from the makers' data sheets."""


def operations(shape: Shape) -> float:
    """Of one token, forward and backward: 6 for each weight of a product, 12 L d T for attention (PaLM, appendix B)."""
    embedded = (shape.vocab_size + shape.context) * shape.d_model
    return 6.0 * (shape.n_params - embedded) + 12.0 * shape.n_layers * shape.d_model * shape.context


def speed(name: str, precision: str, compiled: str) -> dict[str, list[float]]:
    """Seconds of a step of each side, round by round; the card's peak in operations a second, 0 if unknown."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as the trainer has it, for both sides
    import torch

    shape, device = shape_of(name), torch.device("cuda:0")
    torch.cuda.set_device(device)
    torch.manual_seed(1)
    windows = torch.randint(shape.vocab_size, (BATCH, shape.context + 1)).numpy()
    whole = compiled == "compiled"
    sides = {
        "deterministic": _ours(shape, precision, windows, whole, deterministic=True),
        "free": _ours(shape, precision, windows, whole, deterministic=False),
        "plain": _plain(shape, precision, windows, whole),
    }
    for side in sides.values():
        side()  # first touches, and compiling
    found = pairs.alternate(sides, ROUNDS)
    card = torch.cuda.get_device_name(device)
    return {**found, "peak": [next((peak for part, peak in PEAKS.items() if part in card), 0.0)]}


def _ours(shape: Shape, precision: str, windows: object, compiled: bool, *, deterministic: bool) -> Callable[[], float]:
    import torch

    from andrea_rundir.sections import OptimizerConfig
    from andrea_train import model
    from andrea_train.feed import Batch
    from andrea_train.optimizer import AdamW
    from andrea_train.state import State
    from andrea_train.stepper import Stepper

    device = torch.device("cuda:0")
    state = State(shape, device)
    state.w.copy_(model.initial(shape, 1))
    losses = torch.compile(model.losses, dynamic=False) if compiled else model.losses
    adam = AdamW(state, shape, OptimizerConfig())
    stepper = Stepper(device, precision, state, adam, losses, micro_batch=BATCH, loss_scale=SCALE)
    batch = Batch(windows, {"a": BATCH})  # type: ignore[arg-type]

    def steps() -> float:
        torch.use_deterministic_algorithms(deterministic)
        return _timed(lambda: stepper.take(batch, 3e-4, lambda: None, None, lambda: None))

    return steps


def _plain(shape: Shape, precision: str, windows: object, compiled: bool) -> Callable[[], float]:
    import plain
    import torch

    from andrea_train import device as devices

    device = torch.device("cuda:0")
    model = plain.Plain(shape).to(device)
    adam = plain.optimizer(model)
    forward = torch.compile(model, dynamic=False) if compiled else model
    scaler = torch.amp.GradScaler("cuda", init_scale=SCALE, enabled=precision == "fp16")
    source = torch.from_numpy(windows)

    def step() -> None:
        batch = source.pin_memory().to(device, non_blocking=True)
        with devices.autocast(device, precision):
            loss = forward(batch)
        scaler.scale(loss).backward()
        scaler.unscale_(adam)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(adam)
        scaler.update()
        adam.zero_grad(set_to_none=True)
        loss.item()

    def steps() -> float:
        torch.use_deterministic_algorithms(False)
        return _timed(step)

    return steps


def _timed(step: Callable[[], object]) -> float:
    """Median seconds of a step, each to the end of its work on the card; the first one apart."""
    import torch

    taken = []
    for _ in range(STEPS + 1):
        began = time.perf_counter()
        step()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return median(taken[1:])


def rows(quick: bool) -> Iterator[pairs.Row]:
    name = "andrea-12m" if quick else "andrea-120m"
    shape = shape_of(name)
    for precision in ("bf16", "fp16"):
        for how in ("eager", "compiled"):
            found = apart(__file__, "speed", name, precision, how)
            size, bar = f"{shape.n_params / 1e6:.1f}M {precision} {how}", 1.0 if how == "compiled" else None
            for side in ("free", "deterministic"):
                own = bar if side == "free" else None
                yield pairs.faster(f"step, {side}", size, "plain loop", found[side], found["plain"], own)
            yield pairs.costs("deterministic step", size, "ours, free", found["deterministic"], found["free"], 1.1)
            rates = [BATCH * shape.context / seconds for seconds in found["deterministic"]]
            yield pairs.figure("speed, deterministic", size, rates, " tokens/s")
            if peak := found["peak"][0]:
                used = [100 * rate * operations(shape) / peak for rate in rates]
                yield pairs.figure("model FLOPs utilisation", size, used, " %")


if __name__ == "__main__":
    sys.exit(main({"speed": speed}, rows))
