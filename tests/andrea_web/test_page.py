"""The page in a real browser: values equal the files, what is clicked happens, hostile text stays text, and what goes
wrong around it is said and recovers by itself."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from playwright.sync_api import Browser, Page, expect

from andrea_rundir import entries
from andrea_rundir.eventlog import EventLog
from andrea_rundir.events import read_back
from andrea_rundir.names import RunDir
from andrea_service.presence import look
from harness import start, start_proxy, until, wait_step
from harness.dry import DryTrainer
from harness.pages import Client
from harness.waiting import last_step

PATIENCE = 60_000.0
"""Milliseconds that a machine under load may take."""
expect.set_options(timeout=PATIENCE)
HOSTILE = (
    "</pre></bdi><script>window.hurt=1</script><img src=x onerror='window.hurt=1'>{{7*7}}\u202egnp\u2066 \ud800 & <b>"
)
Make = Callable[..., RunDir]


class Seen:
    """A page that is open, and whatever its console complained about."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.set_default_timeout(PATIENCE)


@contextmanager
def opened(
    browser: Browser, client: Client, *, scripts: bool = True, width: int = 1280, scheme: str = "light"
) -> Iterator[Seen]:
    """The page of a client's run, let in by its link."""
    context = browser.new_context(
        java_script_enabled=scripts,
        viewport={"width": width, "height": 900},
        timezone_id="Asia/Tokyo",
        locale="en-GB",
        color_scheme="dark" if scheme == "dark" else "light",
    )
    seen = Seen(context.new_page())
    seen.page.goto(client.url)
    yield seen
    context.close()


def number(text: str) -> int:
    return int(re.sub(r"[^0-9]", "", text))


@pytest.fixture
def live(make: Make) -> Iterator[tuple[RunDir, Client]]:
    """A run that trains, with its proxy and its page."""
    run = make(
        "live",
        {
            "optimizer": {"max_steps": 1_000_000},
            "run": {"plan_wait": 30.0},
            "checkpoint": {"every": 100},
            "probe": {"every": 100},
        },
    )
    with start_proxy(run, "--port", "0") as proxy, start(run) as trainer:
        wait_step(run, 30)
        yield run, Client(run)
        for process in (trainer, proxy):
            if process.process.poll() is None:
                process.stop()


def lag(run: RunDir, shown: int) -> float:
    """Seconds since the step after the one that the page shows was made."""
    now = time.time()
    until("the next one is made", lambda: last_step(run) > shown)
    return now - when(next(e["time"] for e in read_back(run.events) if e["event"] == "step" and e["step"] == shown + 1))


def test_a_live_run_is_shown_saved_pivoted_and_stopped(live: tuple[RunDir, Client], browser: Browser) -> None:
    run, client = live
    with opened(browser, client) as seen, opened(browser, client) as stale:
        page = seen.page
        expect(page.locator("#chart-loss canvas")).to_be_visible()
        expect(page).to_have_title(re.compile("small"))
        for each in (seen, stale):  # as soon as there is a curriculum, also on a page that was loaded before
            expect(each.page.locator("#pivot")).to_be_attached()

        # Steps appear within two seconds of being made: what is on the page now was made at most so long ago.
        shown = number(page.locator("#f-step").inner_text())
        assert lag(run, shown) < 2.0 + 3.0, "three seconds are for a machine under load"

        # A checkpoint, now.
        before = number(page.locator("#f-checkpoint").inner_text())
        for _ in range(5):  # one that falls on the cadence is made for that
            made_before = checkpoints(run)
            page.locator("#checkpoint").click()
            expect(page.locator("#answer")).to_contain_text("A checkpoint is asked for")
            until("it is made", partial(more_than, run, len(made_before)))
            if "signal" in (reasons := checkpoints(run)):
                break
        assert "signal" in reasons
        expect(page.locator("#f-checkpoint")).not_to_have_text(f"{before:,}")

        # A pivot: what cannot be is told while it is typed, what can be is asked for and happens.
        page.locator("#pivoting summary").click()
        page.locator("tr[data-arm=prose] input[name=cap]").fill("0.2")
        page.locator("tr[data-arm=sums] input[name=cap]").fill("0.2")
        expect(page.locator("#judgement")).to_contain_text("the caps sum to less than 1")
        expect(page.locator("#pivot button")).to_be_disabled()
        page.locator("tr[data-arm=sums] input[name=cap]").fill("1")
        expect(page.locator("#judgement")).to_contain_text("It can be done")
        page.locator("#pivot button").click()
        expect(page.locator("#answer")).to_contain_text("The pivot is asked for")
        until("the policy is in force", lambda: "cap = 0.2" in run.policy_toml.read_text())

        # Stop: the run's name first.
        page.locator("#stopping summary").click()
        page.locator("#stop input").fill("other")
        page.locator("#stop button").click()
        expect(page.locator("#answer")).to_contain_text("not the name of the run")
        stale.page.locator("#stopping summary").click()
        stale.page.locator("#stop input").fill("small")
        page.locator("#stop input").fill("small")
        page.locator("#stop button").click()
        expect(page.locator("#answer")).to_contain_text("Told to stop")
        until("it has stopped", lambda: look(run).state == "stopped")
        expect(page.locator("#part-status code")).to_contain_text("andrea-train --run")

        # Everything rests: what is shown is what the files say.
        agrees(page, run)

        # A tab that was left open cannot stop the next trainer.
        with start(run) as trainer:
            until("it trains again", lambda: look(run).state == "running")
            stale.page.locator("#stop button").click()
            expect(stale.page.locator("#answer")).to_contain_text("another process has taken its place")
            assert trainer.process.poll() is None and look(run).alive
            trainer.stop()
        refusals = "the server responded with a status of 409"  # which the browser notes
        assert [text for text in seen.complaints + stale.complaints if refusals not in text] == []


def checkpoints(run: RunDir) -> list[str]:
    """Why each one was made, newest first."""
    return [event["reason"] for event in read_back(run.events) if event["event"] == "checkpoint"]


def more_than(run: RunDir, count: int) -> bool:
    return len(checkpoints(run)) > count


def when(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def agrees(page: Page, run: RunDir) -> None:
    """The figures on the page against the files."""
    until("the proxy has caught up", lambda: json.loads(run.state.read_bytes())["step"] == last_step(run))
    entry = list(entries.read(run.loss))[-1]
    expect(page.locator("#f-step")).to_have_text(f"{entry['step']:,}")
    expect(page.locator("#f-loss")).to_have_text(f"{entry['loss']:.4f}")
    expect(page.locator("#f-ema")).to_have_text(f"{entry['ema']:.4f}")
    expect(page.locator("#f-checkpoint")).to_have_text(f"{max(run.checkpoints()):,}")
    expect(page.locator("#part-status")).to_contain_text("digest verified")
    state = json.loads(run.state.read_bytes())
    for arm, figures in state["arms"].items():
        row = page.locator("#part-arms tbody tr").filter(has_text=arm)
        expect(row).to_contain_text(f"{figures['pulls']:,}")
        expect(row).to_contain_text(f"{100 * figures['share']:.1f} %")
        expect(row).to_contain_text(f"{100 * figures['cap']:.1f} %")
    archived = sorted(run.archive.glob("step_*/step_*.bin"))
    files = {*run.checkpoints(), *(int(path.stem[5:]) for path in archived)}
    listed = page.locator("#part-checkpoints tbody th")
    until("the files are listed", lambda: {number(text) for text in listed.all_inner_texts()} == files)


def test_without_scripts_it_is_readable(trained: RunDir, serve: Callable[[RunDir], Client], browser: Browser) -> None:
    with opened(browser, serve(trained), scripts=False) as seen:
        agrees_without_digest = seen.page.locator("#part-status")
        expect(agrees_without_digest).to_contain_text("60 of 1,000")
        expect(seen.page.locator("#loss svg polyline")).to_be_visible()
        expect(seen.page.locator("#part-arms tbody tr")).to_have_count(2)
        expect(seen.page.locator("#samples figure").first).to_be_visible()
        expect(seen.page.locator("#actions .no-script")).to_be_visible()
        expect(seen.page.locator("#stop")).to_be_hidden()
        assert "UTC" in seen.page.locator("#part-events time").first.inner_text()


def test_times_are_local_with_utc_beside_them(
    trained: RunDir, serve: Callable[[RunDir], Client], browser: Browser
) -> None:
    with opened(browser, serve(trained)) as seen:
        time_of = seen.page.locator("#part-events time").first
        expect(time_of).to_have_text(re.compile(r"\d\d:\d\d:\d\d \(\d\d:\d\d:\d\d UTC\)"))
        local, utc = re.findall(r"(\d\d):\d\d:\d\d", time_of.inner_text())
        assert (int(local) - int(utc)) % 24 == 9  # Tokyo


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark"), (2560, "light")])
def test_it_fits_and_can_be_used_by_keyboard(
    trained: RunDir, serve: Callable[[RunDir], Client], browser: Browser, width: int, scheme: str
) -> None:
    with opened(browser, serve(trained), width=width, scheme=scheme) as seen:
        page = seen.page
        expect(page.locator("#chart-loss canvas")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.locator("button[data-last='500']").focus()
        page.keyboard.press("Enter")
        expect(page.locator("button[data-last='500']")).to_have_attribute("aria-pressed", "true")
        page.locator("#stopping summary").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#stop input")).to_be_visible()
        names = page.evaluate(NAMELESS)
        assert names == [] and seen.complaints == []


def test_the_curve_is_looked_at_by_axis_on_a_log_scale_and_closer(
    trained: RunDir, serve: Callable[[RunDir], Client], browser: Browser
) -> None:
    with opened(browser, serve(trained)) as seen:
        page = seen.page
        first = page.locator("#chart-loss .u-legend .u-label").first
        expect(first).to_have_text("step")
        for axis, label in (("clock", "time"), ("hours", "hours"), ("step", "step")):
            page.locator(f"button[data-axis={axis}]").click()
            expect(first).to_have_text(label)
        linear = page.evaluate(PIXELS)
        page.locator("#log").click()
        expect(page.locator("#log")).to_have_attribute("aria-pressed", "true")
        assert page.evaluate(PIXELS) != linear
        page.locator("#log").click()
        assert page.evaluate(PIXELS) == linear

        # The middle half, selected with the mouse: what is fetched is those steps, each of them.
        box = page.locator("#chart-loss .u-over").bounding_box()
        assert box is not None
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] / 4, y)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 3 / 4, y, steps=5)
        with page.expect_response(re.compile("/api/curve.*from=")) as answer:
            page.mouse.up()
        steps = answer.value.json()["steps"]
        assert len(steps) == pytest.approx(30, abs=4) and steps[0] == pytest.approx(15, abs=2)
        expect(page.locator("button[data-last='0']")).to_have_attribute("aria-pressed", "false")
        with page.expect_response(re.compile("/api/curve[^&]*$")) as answer:
            page.locator("button[data-last='0']").click()
        assert answer.value.json()["steps"] == list(range(1, 61))
        assert seen.complaints == []


PIXELS = "document.querySelector('#chart-loss canvas').toDataURL()"
NAMELESS = """
[...document.querySelectorAll('button, input, select, summary, a, [role=img], section')].filter((one) =>
  !one.getAttribute('aria-label') && !one.getAttribute('aria-labelledby') &&
  !one.textContent.trim() && !one.closest('label')
).map((one) => one.outerHTML.slice(0, 100))
"""


def test_hostile_text_is_text(mine: RunDir, serve: Callable[[RunDir], Client], browser: Browser) -> None:
    """In samples, names, warnings, policies and lineage; a line of 100 KB too. Nothing runs, nothing is broken."""
    long = "<i>" * 33_000
    state = json.loads(mine.state.read_bytes())
    state["arms"][HOSTILE] = state["arms"]["prose"]
    state["retired"] = [{"arm": HOSTILE}]
    mine.state.write_text(json.dumps(state))
    samples = json.loads(mine.samples.read_bytes())
    for audit in samples["audits"]:
        audit["samples"] = [{"prompt": HOSTILE, "text": HOSTILE + long, "looped": True, "why": HOSTILE}]
    mine.samples.write_text(json.dumps(samples))
    mine.lineage.write_text(
        json.dumps(
            {
                "schema": 1,
                "made_by": HOSTILE,
                "step": 1,
                "file": HOSTILE,
                "name": HOSTILE,
                "changed": {HOSTILE: [HOSTILE, 2]},
            }
        )
    )
    mine.policy_toml.write_bytes(mine.policy_toml.read_bytes() + b"# " + HOSTILE.encode(errors="surrogatepass") + b"\n")
    log = EventLog(mine.events)
    log.append("warning", step=60, what=HOSTILE, detail=HOSTILE + long)
    log.append(HOSTILE, step=60, **{HOSTILE: HOSTILE})
    log.close()
    client = serve(mine)
    with opened(browser, client) as seen:
        page = seen.page
        expect(page.locator("footer")).to_be_visible()
        expect(page.locator("#part-arms tbody tr")).to_have_count(3)
        sample = page.locator("#samples pre").first
        expect(sample).to_contain_text("</pre></bdi><script>window.hurt=1</script>")
        expect(sample).to_contain_text("{{7*7}}")
        assert page.evaluate("document.querySelector('#samples pre').textContent.length") > 99_000
        expect(page.locator("#part-events")).to_contain_text("</pre></bdi><script>")
        expect(page.locator("#lineage")).to_contain_text("<img src=x")
        page.locator("#configuration summary").last.click()
        expect(page.locator("#configuration pre").last).to_contain_text("<img src=x")
        page.wait_for_timeout(2500)  # parts have come over the stream meanwhile
        assert page.evaluate("window.hurt") is None and page.locator("img, main script, i").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert seen.complaints == []
    for path in ("/api/run", "/api/samples", "/api/events", "/metrics"):
        assert client.ask(path).status == 200


def test_what_goes_wrong_is_said_and_recovers(make: Make, browser: Browser) -> None:
    """The trainer gone, the proxy gone and back, the directory replaced."""
    run = make("wrong", {"optimizer": {"max_steps": 4000}})
    port = "0"
    with start_proxy(run, "--port", port) as proxy:
        until("the plan begins", lambda: run.plan.exists())
        DryTrainer(run, lambda: not time.sleep(0.01)).train(25)
        until("it serves", lambda: run.page.exists())
        client = Client(run)
        port = str(client.door.address).rpartition(":")[2]
        with opened(browser, client) as seen:
            page = seen.page
            expect(page.locator("#part-status")).to_contain_text("never started here")
            proxy.stop()
            expect(page.locator("#link")).to_contain_text("No answer from andrea-proxy since")
            with start_proxy(run, "--port", port) as again:
                expect(page.locator("#link")).to_be_hidden()
                expect(page.locator("#f-step")).to_have_text("25")
                moved = run.root.with_name("moved")
                run.root.rename(moved)
                expect(page.locator("#link")).to_contain_text("cannot be read")
                shutil.copytree(moved, run.root)
                expect(page.locator("#part-status")).to_contain_text("directory was replaced")
                shutil.rmtree(run.root)
                moved.rename(run.root)
                expect(page.locator("#part-status")).not_to_contain_text("directory was replaced")
                expect(page.locator("#f-step")).to_have_text("25")
                assert again.process.poll() is None
                again.stop()
