# SPDX-License-Identifier: Apache-2.0
"""A headless chromium over its DevTools pipe: enough of it to open a file and measure it."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

__all__ = ["Browser"]

# The protocol is spoken on descriptors 3 (to the browser) and 4 (from it), messages end with a NUL.
_TO_BROWSER, _FROM_BROWSER = 3, 4
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # its sandbox refuses root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--remote-debugging-pipe",
)


class Browser:
    """One page.  `complaints` are its console messages and failed requests so far."""

    def __init__(self, process: "subprocess.Popen[bytes]", write: int, read: int) -> None:
        self._process = process
        self._write, self._read = write, os.fdopen(read, "rb")
        self._buffer = b""
        self._last = 0
        self._session: str | None = None
        self.complaints: list[str] = []

    @classmethod
    @contextmanager
    def started(cls, program: str, profile: Path) -> Iterator[Self]:
        """A browser of its own that ends with the block."""
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()

        def wire() -> None:
            # Both ends may already lie on 3 and 4: first out of the way, then into place.
            down, up = os.dup(to_read), os.dup(from_write)
            os.dup2(down, _TO_BROWSER)
            os.dup2(up, _FROM_BROWSER)

        process = subprocess.Popen(
            [program, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=wire,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        browser = cls(process, to_write, from_read)
        try:
            browser._attach()
            yield browser
        finally:
            browser._end()

    def _attach(self) -> None:
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def _end(self) -> None:
        with suppress(OSError):
            os.close(self._write)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._read.close()

    def open(self, path: Path, width: int, scheme: str = "light") -> None:
        """Load a file into a window of a width in CSS pixels, on light or dark paper."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._call("Emulation.setEmulatedMedia", features=[feature])
        self._call("Page.navigate", url=path.absolute().as_uri())
        while self._message().get("method") != "Page.loadEventFired":
            pass

    def value(self, expression: str) -> Any:
        """What an expression is on the page."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        found = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def pdf(self) -> bytes:
        """The page as it prints."""
        return base64.b64decode(self._call("Page.printToPDF", printBackground=True)["data"])

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._last:
                assert "error" not in answer, (method, answer)
                result: dict[str, Any] = answer["result"]
                return result

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._read.fileno(), 1 << 16)
            assert part, "the browser ended"
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._listen(message)
        return message

    def _listen(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Log.entryAdded":
                self.complaints.append(str(params["entry"]))
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.complaints.append(str(params))
            case "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith(("file:", "about:", "data:")):
                    self.complaints.append(f"asked for {url}")
