"""A headless Chromium through chromedriver's HTTP interface: opens pages, runs scripts, takes screenshots."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from holdfast.testing.real.processes import reserved_ports, tool, wait_until

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
)


def missing() -> str:
    """Return why no browser can be started; empty if one can."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"needs {' and '.join(absent)}: run make system-deps as root" if absent else ""


READY = "document.querySelector('.srv') && document.querySelector('#h0') && document.querySelector('#vlist button')"


class Browser:
    """One window. Use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._held = contextlib.ExitStack()
        (self._port,) = self._held.enter_context(reserved_ports(1))
        self._profile = folder / "profile"
        # Proxies of the environment would take even loopback.
        environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        command = [tool("setpriv"), "--pdeathsig", "KILL", "--", tool("chromedriver"), f"--port={self._port}"]
        with (folder / "chromedriver.log").open("wb") as log:
            self._driver = subprocess.Popen(command, stdout=log, stderr=log, env=environment | {"HOME": str(folder)})
        self._session = ""

    def __enter__(self) -> Browser:
        wait_until(self._answers, "chromedriver to answer", within=60)
        options = {"args": [*FLAGS, f"--user-data-dir={self._profile}"], "binary": tool("chromium")}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self._session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        return self

    def __exit__(self, *_exc: object) -> None:
        with self._held:
            try:
                if self._session:
                    self._call("DELETE", f"/session/{self._session}")
            finally:
                self._driver.terminate()
                self._driver.wait(30)

    def open(self, url: str) -> None:
        self._do("POST", "url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """Run a script, and return what it returns."""
        return self._do("POST", "execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def wait(self, condition: str, what: str, within: float = 60) -> None:
        """Wait until a JavaScript expression is true."""
        wait_until(lambda: bool(self.run(f"return Boolean({condition})")), what, within=within)

    def press(self, key: str) -> None:
        for event in ("keyDown", "keyUp"):
            self.devtools("Input.dispatchKeyEvent", type=event, key=key, text=key if len(key) == 1 else "")

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, file: Path, *, whole: bool = True) -> None:
        found = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(found["data"]))

    def complaints(self) -> list[str]:
        """Return the errors of the console since the last call."""
        found = self._do("POST", "se/log", {"type": "browser"})
        return [one["message"] for one in found if one["level"] == "SEVERE"]

    def devtools(self, command: str, **parameters: object) -> Any:
        return self._do("POST", "goog/cdp/execute", {"cmd": command, "params": parameters})

    def processor_ms(self) -> float:
        """Return the processor time that the page's tasks have taken, whatever else the machine does."""
        self.devtools("Performance.enable", timeDomain="threadTicks")
        found = self.devtools("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in found if one["name"] == "TaskDuration")) * 1000

    def _do(self, method: str, path: str, body: object) -> Any:
        return self._call(method, f"/session/{self._session}/{path}", body)

    def _answers(self) -> bool:
        try:
            return bool(self._call("GET", "/status")["ready"])
        except OSError:
            return False

    def _call(self, method: str, path: str, body: object = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            found = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(found, dict) and "error" in found:
            raise AssertionError(f"{path}: {found['message']}")
        return found


def opened(browser: Browser, port: int) -> None:
    """Open the dashboard, and wait until it is filled."""
    browser.open(f"http://127.0.0.1:{port}/")
    browser.wait(READY, "the page to be filled")
