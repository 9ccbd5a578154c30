"""Chromium without a screen, told what to do over a pipe (the DevTools protocol)."""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.command import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = ROOT / ".venv" / "axe-core" / "axe_playwright_python" / "axe.min.js"  # scripts/venv brings it
_LONGEST = 600.0  # seconds for one answer; axe-core looks long at a page of 500 modules
_OPTIONS = ("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run")


class Page:
    """One page of a browser."""

    def __init__(self, to: int, answers: int) -> None:
        self._to, self._answers, self._rest, self._number, self._session = to, answers, b"", 0, ""
        self.asked: list[str] = []  # URLs that were loaded
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> Any:
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        os.write(
            self._to, json.dumps(message | ({"sessionId": self._session} if self._session else {})).encode() + b"\0"
        )
        while (found := self._read()).get("id") != self._number:
            self._note(found)
        assert "error" not in found, found
        return found["result"]

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + _LONGEST
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], end - time.monotonic())
            assert ready, "Chromium does not answer"
            more = os.read(self._answers, 1 << 20)
            assert more, "Chromium has ended"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        method, said = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.asked.append(said["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(said["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        elif method == "Log.entryAdded":
            self.complaints.append(said["entry"]["text"])

    def open(self, path: Path, hash_: str = "") -> None:
        for url in ("about:blank", f"{path.as_uri()}{hash_}"):  # a page that is there would only go to the hash
            self.call("Page.navigate", url=url)
            end = time.monotonic() + _LONGEST
            while not self.run(f"document.readyState === 'complete' && location.href.startsWith({url!r})"):
                assert time.monotonic() < end
                time.sleep(0.01)

    def run(self, script: str) -> Any:
        """What an expression gives; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def look(self, *, width: int, height: int = 900, dark: bool = False, script: bool = True) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)

    def press(self, *keys: str) -> None:
        """Keys by their names; one of a letter is typed."""
        for key in keys:
            text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
            code = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40, " ": 32}.get(key, 0)
            down = {"key": key, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
            self.call("Input.dispatchKeyEvent", type="keyDown", **down)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def faults(self) -> list[str]:
        """What axe-core finds."""
        self.run(f"{AXE.read_text()};0")
        found = self.run(
            "axe.run(document, {resultTypes: ['violations'], preload: false}).then(found => found.violations)"
        )
        return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A page of a Chromium of its own."""
    assert CHROMIUM, "chromium is missing: run scripts/provision"
    theirs, to = os.pipe()
    answers, their_answers = os.pipe()

    def take() -> None:
        copies = os.dup(theirs), os.dup(their_answers)
        os.dup2(copies[0], 3)
        os.dup2(copies[1], 4)

    process = subprocess.Popen(
        [CHROMIUM, *_OPTIONS, f"--user-data-dir={profile}"],
        preexec_fn=take,
        close_fds=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(theirs)
    os.close(their_answers)
    try:
        yield Page(to, answers)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(to)
        os.close(answers)
