"""Chromium, where it is installed."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, async_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--enable-precise-memory-info",
]


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    # The headless shell is Chromium without a window system, and starts much faster.
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if not program:
        missing = "there is no Chromium: apt-get install chromium (or put it on the PATH)"
        if os.environ.get("REACTOR_TEST_BROWSER") == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        await browser.close()
