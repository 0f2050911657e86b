"""A headless Chromium on the page, for tests that see and do what a user does.

TRAINWRIGHT_SCREENSHOTS names a folder for pictures.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.waiting import eventually

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-prefers-reduced-motion",
)
FORGET = "Storage.prototype.setItem = () => {}; sessionStorage.clear()"
"""Takes the session from a page, which puts it there again after each proof of its server."""


class Browser:
    """One window. Waits are for conditions; each failure says what the page shows."""

    def __init__(self, driver: Any):
        self.driver = driver

    def open(self, address: str) -> None:
        self.driver.get(address)

    def text(self) -> str:
        return str(self.script("return document.body.innerText"))

    def script(self, source: str, *arguments: Any) -> Any:
        return self.driver.execute_script(source, *arguments)

    def asynchronous(self, source: str, *arguments: Any) -> Any:
        return self.driver.execute_async_script(source, *arguments)

    def wait_for(self, *words: str, seconds: float = 30) -> None:
        """Wait until the page shows these words."""
        try:
            eventually(lambda: all(word in self.text() for word in words), seconds, f"{words} on the page")
        except AssertionError as error:
            self.picture("failed")
            raise AssertionError(f"{error}\nthe page shows:\n{self.text()[:3000]}\n{self.messages()}") from None

    def wait_until_gone(self, word: str, seconds: float = 30) -> None:
        eventually(lambda: word not in self.text(), seconds, f"{word!r} to be gone")

    def element(self, selector: str, seconds: float = 15) -> Any:
        """Return the first element of a CSS selector, when there is one."""
        from selenium.webdriver.common.by import By

        found = eventually(lambda: self.driver.find_elements(By.CSS_SELECTOR, selector), seconds, f"an element {selector}")
        return found[0]

    def count(self, selector: str) -> int:
        return int(self.script("return document.querySelectorAll(arguments[0]).length", selector))

    def click(self, name: str, seconds: float = 15) -> None:
        """Click on the first control whose text begins so, or whose name for screen readers does."""
        find = (
            "return [...document.querySelectorAll('button, a, [role=button], [role=tab], summary, label')]"
            ".find(each => each.offsetParent !== null && (each.innerText.trim().startsWith(arguments[0])"
            " || (each.getAttribute('aria-label') || '').startsWith(arguments[0]))) || null"
        )
        element = eventually(lambda: self.script(find, name), seconds, f"a control {name!r} in {self.text()[:2000]}")
        self.script("arguments[0].scrollIntoView({block: 'nearest'})", element)
        element.click()

    def type(self, selector: str, text: str) -> None:
        """Replace the text of a field, key by key."""
        from selenium.webdriver.common.keys import Keys

        field = self.element(selector)
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text or Keys.DELETE)

    def press(self, *keys: str) -> None:
        """Press keys on whatever has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def resize(self, width: int, height: int) -> None:
        """Set the size of the viewport, which a window cannot be as narrow as."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        """Have the system prefer `light` or `dark`."""
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )

    def messages(self) -> list[str]:
        """Return the errors in the console since the last call, violations of the content security policy among them."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def picture(self, name: str) -> None:
        """Take a picture, if pictures are wanted."""
        if folder := os.environ.get("TRAINWRIGHT_SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(str(Path(folder) / f"{name}.png"))

    def requests(self) -> list[str]:
        """Return the addresses of all resources that the page has loaded."""
        names = "return performance.getEntriesByType('resource').map(each => each.name)"
        return [str(name) for name in self.script(names)]

    def traffic(self) -> list[dict[str, Any]]:
        """Return the parameters of the events about requests and responses since the last call, of this tab."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [{"event": each["method"], **each["params"]} for each in events if each["method"].startswith("Network.re")]


@contextmanager
def browser(*, width: int = 1280, height: int = 900, logs: Sequence[str] = ("browser",)) -> Iterator[Browser]:
    """Start a browser, and end it; `performance` among the logs is for `traffic`. Skips where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium, which the extra `dev` installs")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs chromium and chromedriver: apt-get install chromium chromium-driver")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", dict.fromkeys(logs, "ALL"))
    with tempfile.TemporaryDirectory(prefix="browser-") as profile:
        for argument in (*QUIET, f"--window-size={width},{height}", f"--user-data-dir={profile}"):
            options.add_argument(argument)
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        driver.set_script_timeout(60)
        try:
            yield Browser(driver)
        finally:
            driver.quit()
