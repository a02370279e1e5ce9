"""A page served in this process for what happens by HTTP, and a browser that opens it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from andrea_rundir.names import RunDir
from andrea_web.server import Page
from harness.dry import quiet
from harness.pages import Client
from harness.runs import make_run

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

Serve = Callable[[RunDir], Client]


@pytest.fixture(scope="module")
def serve() -> Iterator[Serve]:
    """Serves the page of a run in this process, until the module's end."""
    pages: list[Page] = []

    def served(run: RunDir) -> Client:
        pages.append(Page(run, 0))
        pages[-1].__enter__()
        return Client(run)

    yield served
    for page in pages:
        page.__exit__(None, None, None)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run of 60 steps with all its sidecars, that nobody works on any more. Not to be changed."""
    return quiet(make_run(tmp_path_factory.mktemp("trained") / "run", changes={"optimizer": {"max_steps": 1000}}), 60)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, headless. A machine without it fails the tests: the page was not looked at."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    assert found is not None, f"no browser: none of {', '.join(BROWSERS)} is installed (apt-get install chromium)"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def mine(trained: RunDir, tmp_path: Path) -> RunDir:
    """The same run, to be hurt."""
    shutil.copytree(trained.root, tmp_path / "run")
    return RunDir(tmp_path / "run")
