"""A headless Chromium, driven by the WebDriver protocol over its own small HTTP interface."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever proxy the shell names
ARGUMENTS = [
    "--headless",
    "--no-sandbox",  # a container's root may not make one
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]


class Browser:
    """A window in which scripts can be run."""

    def __init__(self, address: str, profile: Path) -> None:
        self.address = address
        capabilities = {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"binary": CHROMIUM, "args": [*ARGUMENTS, f"--user-data-dir={profile}"]},
        }
        self.session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})["sessionId"]

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show a file, in a window of a size, for someone who prefers dark pages or light ones."""
        self.open_address(path.resolve().as_uri(), width=width, height=height, dark=dark)

    def open_address(self, address: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show the page at an address, as `open` shows a file."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", {"features": [scheme]})
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.devtools("Emulation.setDeviceMetricsOverride", size)
        self._post("url", {"url": address})

    def run(self, script: str) -> Any:
        """What the body of a function returns."""
        return self._post("execute/sync", {"script": script, "args": []})

    def messages(self) -> list[str]:
        """What the console has shown since it was last asked."""
        return [entry["message"] for entry in self._post("se/log", {"type": "browser"})]

    def devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        return self._post("goog/cdp/execute", {"cmd": command, "params": parameters})

    def picture(self, path: Path) -> None:
        """The whole page as PNG."""
        found = self.devtools("Page.captureScreenshot", {"captureBeyondViewport": True, "format": "png"})
        path.write_bytes(base64.b64decode(found["data"]))

    def print(self, path: Path) -> None:
        """The page on paper, as PDF."""
        path.write_bytes(base64.b64decode(self._post("print", {"background": False})))

    def close(self) -> None:
        self._call("DELETE", f"/session/{self.session}")

    def _post(self, command: str, content: dict[str, Any]) -> Any:
        return self._call("POST", f"/session/{self.session}/{command}", content)

    def _call(self, verb: str, path: str, content: dict[str, Any] | None = None) -> Any:
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.address + path, body, {"Content-Type": "application/json"}, method=verb)
        with DIRECTLY.open(request, timeout=120) as answer:
            return json.loads(answer.read())["value"]


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile, ended afterwards."""
    assert DRIVER is not None
    # On a port that is free.
    with subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        try:
            port = next(found[1] for line in driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))
            opened = Browser(f"http://127.0.0.1:{port}", profile)
            try:
                yield opened
            finally:
                opened.close()
        finally:
            driver.terminate()
