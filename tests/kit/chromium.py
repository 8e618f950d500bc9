"""A headless Chromium, spoken to over its debugging pipe (descriptors 3 and 4)."""

import base64
import json
import os
import subprocess
import threading
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, Self

from kit.install import find_tool

Json = dict[str, Any]  # Any: JSON
_SECONDS: Final = 60.0  # patience; nothing is judged by it
_NAVIGATED: Final = "target navigated"  # while a command was carried out
_FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Chromium:
    """One browser with one tab, until the end of a ``with`` block.

    Args:
        directory: gets its profile and log.

    Attributes:
        requests: addresses the tab has asked for.
        complaints: what it wrote to the console, violations of the policy among them.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._next = 0
        self._answers: SimpleQueue[Json | None] = SimpleQueue()
        self._loaded = threading.Event()
        self._session = ""
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def __enter__(self) -> Self:
        """Start it and attach to its tab."""
        commands, self._commands = os.pipe()
        self._events, events = os.pipe()
        log = (self._directory / "chromium.log").open("wb")
        # The shell moves our pipes to where the browser looks for them.
        program = f'exec 3<&{commands} 4>&{events}; exec "$0" "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", program, find_tool("chromium"), *_FLAGS,
             f"--user-data-dir={self._directory / 'profile'}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(commands, events),
        )  # fmt: skip
        log.close()
        os.close(commands)
        os.close(events)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        attached = self._send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._send(f"{domain}.enable")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._thread.join(_SECONDS)
        os.close(self._commands)
        os.close(self._events)

    def _listen(self) -> None:
        """Sort what comes: answers to the queue, events to their lists."""
        rest = b""
        while chunk := os.read(self._events, 1 << 16):
            *messages, rest = (rest + chunk).split(b"\0")
            for raw in messages:
                message = json.loads(raw)
                if "id" in message:
                    self._answers.put(message)
                else:
                    self._note(message["method"], message["params"])
        self._answers.put(None)

    def _note(self, method: str, params: Json) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))

    def _send(self, method: str, **params: object) -> Json:
        self._next += 1
        message: Json = {"id": self._next, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        answer = self._answers.get(timeout=_SECONDS)
        assert answer is not None, (self._directory / "chromium.log").read_text()[-2000:]
        if _NAVIGATED in answer.get("error", {}).get("message", ""):
            return self._send(method, **params)  # of the page that came meanwhile
        assert "error" not in answer, answer
        result: Json = answer["result"]
        return result

    def open(
        self, url: str, *, width: int, height: int, is_dark: bool = False, has_script: bool = True
    ) -> None:
        """Load a page in a window of this size and wait until it is there."""
        self._send("Emulation.setScriptExecutionDisabled", value=not has_script)
        self._send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._send("Emulation.setEmulatedMedia", features=[scheme])
        self._navigate(url)

    def leave(self) -> None:
        """Leave the page, which asks its server for nothing any more, and forget what it wrote."""
        self._navigate("about:blank")
        self.requests.clear()
        self.complaints.clear()

    def _navigate(self, url: str) -> None:
        self._loaded.clear()
        self._send("Page.navigate", url=url)
        assert self._loaded.wait(_SECONDS), url

    def evaluate(self, expression: str) -> Any:  # Any: JSON
        """Evaluate JavaScript in the page, whatever the page itself may do; waits for a promise."""
        answer = self._send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key, as a person does, and let it go."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self._send("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                       windowsVirtualKeyCode=code, **text)  # fmt: skip

    def screenshot(self, path: Path) -> bytes:
        """Write a PNG of the whole page; give its bytes."""
        answer = self._send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        picture = base64.b64decode(answer["data"])
        path.write_bytes(picture)
        return picture
