"""`/metrics`: the figures of the page for Prometheus, in its text format; what is not known is left out.

Pure but for prometheus_client, whose registry is made for one answer. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from andrea_web.figures import Figures

_GAUGES = {
    "andrea_steps": ("step", "Optimizer steps done."),
    "andrea_max_steps": ("max_steps", "Steps the run ends at."),
    "andrea_loss": ("loss", "Training loss of the newest step, nats a token."),
    "andrea_loss_smoothed": ("ema", "The same, smoothed over about 100 steps."),
    "andrea_tokens_per_second": ("tokens_per_second", "Mean speed inside the last steps."),
    "andrea_eta_seconds": ("eta_seconds", "Time left, while it runs."),
    "andrea_step_time_seconds": ("step_time", "When the newest step was done, seconds since the epoch."),
    "andrea_trainer_memory_bytes": ("memory", "Memory that the trainer's process holds."),
}
_CARD = {
    "andrea_card_memory_bytes": ("memory", "Memory of the card that is taken, by all processes."),
    "andrea_card_temperature_celsius": ("temperature", "As the card's driver tells it."),
    "andrea_card_power_watts": ("power", "What the card draws."),
}
_ARM = {
    "andrea_arm_share": ("share", "Share of pulls in the round of the newest step."),
    "andrea_arm_reward": ("reward", "EMA of progress, bits a byte."),
    "andrea_arm_epochs": ("epochs", "How often the arm's text went by."),
}


def render(figures: Figures) -> bytes:
    """The answer's body."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Now(figures))
    return generate_latest(registry)


class _Now(Collector):
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """Every family that has a value."""
        figures = self._figures
        up = GaugeMetricFamily("andrea_up", "1 while the trainer runs, 0 when it does not or cannot be looked at.")
        up.add_metric([], float(figures.get("state") in ("starting", "running")))
        yield up
        if "fault" in figures:
            return
        info = InfoMetricFamily("andrea_run", "Which run this is, and its state.")
        info.add_metric([], {name: _text(str(figures[name])) for name in ("id", "name", "state")})
        yield info
        for name, (key, text) in _GAUGES.items():
            if figures[key] is not None:
                yield GaugeMetricFamily(name, text, value=float(figures[key]))
        restarts = CounterMetricFamily("andrea_restarts", "Starts after the first.", value=figures["restarts"])
        yield restarts
        if (checkpoint := figures["checkpoint"]) is not None:
            yield GaugeMetricFamily("andrea_checkpoint_step", "Step of the newest.", value=checkpoint["step"])
            age = checkpoint["age_seconds"]
            yield GaugeMetricFamily("andrea_checkpoint_age_seconds", "Age of the newest.", value=age)
        if (disk := figures["disk"]) is not None:
            yield GaugeMetricFamily("andrea_disk_free_bytes", "Room left on the run's disk.", value=disk["free"])
        if (probe := figures["probe"]) is not None and probe["mean"] is not None:
            yield GaugeMetricFamily("andrea_probe_bits_per_byte", "Held-out, prior-weighted.", value=probe["mean"])
        if (audit := figures["audit"]) is not None:
            yield GaugeMetricFamily("andrea_samples_score", "100 is no sample in circles.", value=audit["score"])
        yield from self._card()
        yield from self._arms()

    def _card(self) -> Iterator[Metric]:
        card = self._figures["card"] if self._figures["pid"] is not None else None
        for name, (key, text) in _CARD.items():
            if card is not None and card[key] is not None:
                yield GaugeMetricFamily(name, text, value=float(card[key]))

    def _arms(self) -> Iterator[Metric]:
        arms = (self._figures["curriculum"] or {}).get("arms", {})
        pulls = CounterMetricFamily("andrea_arm_pulls", "Sequences under the policy in force.", labels=["arm"])
        for arm, of_arm in arms.items():
            pulls.add_metric([_text(arm)], of_arm["pulls"])
        yield pulls
        for name, (key, text) in _ARM.items():
            family = GaugeMetricFamily(name, text, labels=["arm"])
            for arm, of_arm in arms.items():
                family.add_metric([_text(arm)], of_arm[key])
            yield family


def _text(name: str) -> str:
    """As UTF-8 can carry it."""
    return name.encode("utf-8", "backslashreplace").decode()
