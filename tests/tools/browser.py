#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens pages in Chromium without a screen, for 37-page.bats.

    browser.py [--limit SECONDS] STEP...

The steps are taken in order; the first that fails ends the run with status 1:

    size WIDTHxHEIGHT [dark]   the window, and what it prefers
    open URL
    wait JS                    until this expression of the page is true
    eval JS                    prints its value as a line of JSON
    run JS-FILE                runs a file's text in the page, as axe-core's
    key NAME                   presses Tab, Enter, Escape, Space, ArrowDown
    type TEXT
    sh COMMAND                 in a shell, beside the page
    shot FILE                  a PNG of the window
    quiet                      fails if the console said something
    quiet-but REGEX            the same, but for lines that match
    home                       fails if a request went to another host than the page's

It speaks Chromium's protocol over --remote-debugging-pipe: JSON with a NUL behind each message."""

import base64
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "Space": 32, "ArrowDown": 40}
TEXTS = {"Enter": "\r", "Space": " "}


class Failed(Exception):
    pass


class Browser:
    def __init__(self, limit_s):
        self.limit_s = limit_s
        self.directory = tempfile.mkdtemp(prefix="gmsfs-browser-")
        self.console, self.requests, self.host = [], [], None
        self.number, self.rest, self.session = 0, b"", None
        their_in, self.out = os.pipe()
        self.into, their_out = os.pipe()
        self.process = self.start(their_in, their_out)
        os.close(their_in)
        os.close(their_out)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log", "Network"):
            self.call(part + ".enable")

    def start(self, their_in, their_out):
        program = shutil.which("chromium")
        if not program:
            raise Failed("no chromium here")

        def take_pipes():
            # Not onto 3 and 4 before both are out of their way.
            high_in, high_out = os.dup2(their_in, 200), os.dup2(their_out, 201)
            os.dup2(high_in, 3)
            os.dup2(high_out, 4)

        return subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--hide-scrollbars", "--no-first-run", "--disable-extensions", "--disable-background-networking",
             "--disable-component-update", "--force-device-scale-factor=1", "--remote-debugging-pipe",
             "--user-data-dir=" + self.directory],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=take_pipes, close_fds=False, env={**os.environ, "HOME": self.directory})

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(10)
        except (Failed, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    # ---- messages

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + self.limit_s
        while time.monotonic() < end:
            for answer in self.read(end - time.monotonic()):
                if answer.get("id") == self.number:
                    if "error" in answer:
                        raise Failed(f"{method}: {answer['error']['message']}")
                    return answer["result"]
        raise Failed(f"{method}: no answer of the browser within {self.limit_s} s")

    def read(self, seconds):
        """Yields the messages that come; notes those that no call waits for."""
        if not select.select([self.into], [], [], max(0, seconds))[0]:
            return
        data = os.read(self.into, 1 << 20)
        if not data:
            raise Failed("the browser has gone")
        *whole, self.rest = (self.rest + data).split(b"\0")
        answers = []
        for text in whole:
            message = json.loads(text)
            if "id" in message:
                answers.append(message)
            else:
                self.note(message["method"], message["params"])
        yield from answers

    def note(self, method, found):
        if method == "Runtime.consoleAPICalled":
            words = [str(one.get("value", one.get("description"))) for one in found["args"]]
            self.console.append(" ".join(words))
        elif method == "Runtime.exceptionThrown":
            details = found["exceptionDetails"]
            self.console.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded":
            self.console.append(f"{found['entry']['text']} {found['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(found["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.console.append(f"a dialog: {found['message']}")

    # ---- steps

    def evaluate(self, text):
        found = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise Failed(f"{text}: {details.get('exception', {}).get('description')}")
        return found["result"].get("value")

    def size(self, text):
        width, height, scheme = re.fullmatch(r"(\d+)x(\d+)( dark)?", text).groups()
        self.call("Emulation.setDeviceMetricsOverride", width=int(width), height=int(height),
                  deviceScaleFactor=1, mobile=int(width) < 500)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if scheme else "light"}])

    def open(self, url):
        self.host = urllib.parse.urlsplit(url).netloc
        found = self.call("Page.navigate", url=url)
        if "errorText" in found:
            raise Failed(f"{url}: {found['errorText']}")

    def wait(self, text):
        end = time.monotonic() + self.limit_s
        while not self.evaluate(f"Boolean({text})"):
            if time.monotonic() > end:
                shown = self.evaluate("document.body.innerText")
                raise Failed(f"not so within {self.limit_s} s: {text}\n{shown[:4000]}\n{self.console}")
            time.sleep(0.05)

    def eval(self, text):
        print(json.dumps(self.evaluate(text), ensure_ascii=False), flush=True)

    def run(self, file):
        with open(file, encoding="utf-8") as source:
            self.evaluate(source.read() + "\n;undefined")

    def key(self, name):
        for kind in ("keyDown", "keyUp"):
            text = {"text": TEXTS[name]} if kind == "keyDown" and name in TEXTS else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=" " if name == "Space" else name, code=name,
                      windowsVirtualKeyCode=KEYS[name], **text)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def sh(self, command):
        subprocess.run(["bash", "-c", command], check=True, stdin=subprocess.DEVNULL)

    def shot(self, file):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(file, "wb") as image:
            image.write(base64.b64decode(data))

    def quiet(self, allowed=None):
        self.evaluate("0")  # what was said before is here after this answer
        bad = [text for text in self.console if not (allowed and re.search(allowed, text))]
        if bad:
            raise Failed("on the console: " + "\n".join(bad))

    def home(self):
        away = [url for url in self.requests
                if not url.startswith(("data:", "about:")) and urllib.parse.urlsplit(url).netloc != self.host]
        if away or not self.requests:
            raise Failed(f"requests to other hosts: {away} of {len(self.requests)}")


def main():
    arguments = sys.argv[1:]
    limit_s = 20.0
    if arguments[:1] == ["--limit"]:
        limit_s = float(arguments[1])
        arguments = arguments[2:]
    browser = None
    try:
        browser = Browser(limit_s)
        while arguments:
            step = arguments.pop(0)
            if step == "home":
                browser.home()
            elif step == "quiet":
                browser.quiet()
            elif step == "quiet-but":
                browser.quiet(arguments.pop(0))
            elif step in ("size", "open", "wait", "eval", "run", "key", "type", "sh", "shot"):
                getattr(browser, step)(arguments.pop(0))
            else:
                raise Failed(f"no step '{step}'")
    except (Failed, subprocess.CalledProcessError) as error:
        print(f"browser.py: {error}", file=sys.stderr)
        return 1
    finally:
        if browser:
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
