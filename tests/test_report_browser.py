"""The report page in headless Chromium: it opens, filters and obeys keys; texts stay text; it asks for nothing.

Chromium is driven over its DevTools protocol. Debian's package is ``chromium``.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_report import ATTACK, big_run, passages, questions

from hopgate.evaluation.report import write_report
from hopgate.evaluation.report_data import report_data

aiohttp = pytest.importorskip("aiohttp", reason="aiohttp is needed to drive Chromium")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium here (apt-get install chromium)")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "--window-size=1300,900",
]
COUNT = 500
WAIT = 0.5
"""Seconds that a filter may take here; what is seen as a wait starts at a tenth on an idle machine."""


class Tab:
    """One page of the browser."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.number = 0
        self.events: list[dict[str, Any]] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        self.number += 1
        await self.socket.send_json({"id": self.number, "method": method, "params": params})
        while True:
            message = await self.socket.receive_json(timeout=60)
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    async def run(self, expression: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def press(self, key: str) -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def opened(self, path: Path) -> None:
        """Open a file and wait until its script has run."""
        for domain in ("Runtime", "Log", "Network", "Page"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=path.as_uri())
        for _ in range(200):
            if await self.run("location.protocol === 'file:' && document.readyState === 'complete'"):
                return
            await asyncio.sleep(0.05)
        pytest.fail("the page did not finish loading")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Where a browser of these tests' own listens."""
    folder = tmp_path_factory.mktemp("chromium")
    process = subprocess.Popen(
        [str(BROWSER), *FLAGS, f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        told = folder / "DevToolsActivePort"
        end = time.monotonic() + 60
        while not (told.exists() and told.read_text().strip()):
            assert process.poll() is None, "chromium ended at once"
            assert time.monotonic() < end, "chromium did not start within a minute"
            time.sleep(0.05)
        yield int(told.read_text().split()[0])
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two runs of 500 trajectories, with hostile texts."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    runs = [big_run("first", COUNT), big_run("second", COUNT, seed=1)]
    size = write_report(path, report_data(runs, questions=questions(COUNT), passages=passages, title=f"Title {ATTACK}"))
    assert size < 10_000_000
    return path


@pytest.fixture
def visit(port: int, page: Path) -> Callable[[Callable[[Tab], Awaitable[None]]], None]:
    """Run a visit on the page in a tab of its own; afterwards nothing may have failed or been asked for."""

    async def visited(body: Callable[[Tab], Awaitable[None]]) -> None:
        async with aiohttp.ClientSession() as session:
            async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
                target = json.loads(await answer.text())
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                tab = Tab(socket)
                await tab.opened(page)
                await body(tab)
                await tab.run("new Promise((done) => setTimeout(done, 50))")
                seen = {event["method"]: event["params"] for event in tab.events}
                assert "Runtime.exceptionThrown" not in seen, seen["Runtime.exceptionThrown"]
                assert "Log.entryAdded" not in seen, seen["Log.entryAdded"]
                asked = [
                    event["params"]["request"]["url"]
                    for event in tab.events
                    if event["method"] == "Network.requestWillBeSent"
                ]
                assert asked == [page.as_uri()]
                assert await tab.run("window.pwned") is None
                await tab.call("Page.close")

    return lambda body: asyncio.run(visited(body))


SHOWN = "document.getElementById('count').textContent"
HEAD = "document.querySelector('#detail h3').textContent"


def changed(element: str, value: str) -> str:
    """JavaScript that changes a filter, draws, and gives the seconds that it took."""
    return f"""(() => {{ const node = document.getElementById({element!r}), start = performance.now();
        if (node.type === 'checkbox') node.checked = {value}; else node.value = {value};
        node.dispatchEvent(new Event(node.type === 'search' ? 'input' : 'change', {{ bubbles: true }}));
        document.getElementById('list').getBoundingClientRect(); document.getElementById('detail').scrollHeight;
        return (performance.now() - start) / 1000; }})()"""


def test_it_opens_and_draws_what_is_in_view_only(visit: Any) -> None:
    async def body(tab: Tab) -> None:
        assert await tab.run(SHOWN) == f"{COUNT} of {COUNT} questions"
        assert 5 < await tab.run("document.querySelectorAll('.row').length") < 60
        assert await tab.run("document.querySelectorAll('svg.chart').length") == 3
        assert await tab.run("document.querySelectorAll('#summary tbody tr').length") == 2
        loaded = await tab.run("performance.getEntriesByType('navigation')[0].loadEventEnd / 1000")
        assert 0 < loaded < 5
        await tab.run("document.getElementById('list').scrollTop = 1e9")
        await tab.run("new Promise((done) => setTimeout(done, 100))")
        assert await tab.run("document.querySelector('.row:last-child').getAttribute('aria-posinset')") == str(COUNT)

    visit(body)


def test_filters_and_search(visit: Any) -> None:
    failed = {i for i in range(COUNT) if i % 50 == 49}
    right = {i for i in range(COUNT) if i % 3 == 0} - failed
    wrong = set(range(COUNT)) - right - failed
    expected = {
        ("wrong", "true"): wrong,
        ("failed", "true"): failed,
        ("offtopic", "true"): {i for i in range(COUNT) if i % 5 == 1} - failed,
        # A failure is recorded with one retrieval.
        ("retrieved", "true"): {i for i in range(COUNT) if i % 4} | failed,
        ("hops", "'3'"): {i for i in range(COUNT) if i % 3 == 1} - failed,
        ("type", "'comparison'"): {i for i in range(COUNT) if i % 2} - failed,
        ("search", "'NUMBER 77 invented'"): {77, 177, 277, 377, 477},
        ("search", "'no such words'"): set(),
    }

    async def body(tab: Tab) -> None:
        slowest = 0.0
        for (element, value), ids in expected.items():
            slowest = max(slowest, await tab.run(changed(element, value)))
            assert await tab.run(SHOWN) == f"{len(ids)} of {COUNT} questions", (element, value)
            off = "false" if value == "true" else "''"
            slowest = max(slowest, await tab.run(changed(element, off)))
        # Together, and kept when the run changes.
        await tab.run(changed("wrong", "true"))
        await tab.run(changed("hops", "'3'"))
        both = wrong & {i for i in range(COUNT) if i % 3 == 1}
        assert await tab.run(SHOWN) == f"{len(both)} of {COUNT} questions"
        slowest = max(slowest, await tab.run(changed("run", "'1'")))
        # The second run is right one question later, so that none of these is right in it.
        assert "in run second" in await tab.run("document.getElementById('detail').textContent")
        assert slowest < WAIT

    visit(body)


def test_texts_stay_text_and_answers_are_marked(visit: Any) -> None:
    async def body(tab: Tab) -> None:
        assert await tab.run(HEAD) == f"What is {ATTACK}?"
        text = await tab.run("document.getElementById('detail').textContent")
        assert text.count("<script>window.pwned = 1</script>") > 3 and "Title <b>p3</b>" in text
        # The place of the question in a sub-question is filled again.
        assert f"Hop 1: What is {ATTACK}?" in text
        assert (
            await tab.run("document.querySelectorAll('#detail script, #detail img, #detail b:not(.bar b)').length") == 0
        )
        assert await tab.run("document.title") == f"Title {ATTACK}"
        marks = await tab.run("[...document.querySelectorAll('#detail mark.gold')].map((node) => node.textContent)")
        assert marks and set(marks) == {"Answer 0"}
        assert "supporting" in text and "kept from memory" in text and "below tau -0.30" in text
        width = await tab.run("document.querySelector('.hop .bar i').style.width")
        assert float(width.removesuffix("%")) == pytest.approx(100 * 0.904837, abs=0.01)

    visit(body)


def test_attempts_and_decisions_are_shown_with_their_outcome(visit: Any) -> None:
    async def body(tab: Tab) -> None:
        rows = await tab.run(
            "[...document.querySelectorAll('.attempts tbody tr')].map((row) =>"
            " [...row.cells].map((cell) => cell.textContent))"
        )
        assert [row[0] for row in rows] == ["1. Solve", "2. Re-Solve (hop 2, page 2)", "3. Re-Compose"]
        assert (
            rows[0][1] == f"What is {ATTACK}? yesread: Title <b>p3</b>" and rows[0][3] == "off-topic (P on-topic 0.10)"
        )
        assert rows[1][2] == f"{ATTACK}kept" and rows[1][4] == "3 LM calls, 1 retrieval"
        assert rows[2][2:4] == [f"failed: {ATTACK}", "not judged"]
        text = await tab.run("document.getElementById('detail').textContent")
        assert f"the whole question from its passages{ATTACK} not sure enoughconfidence 0.61" in text
        assert "composed after a hopAnswer 0 kept no confidence" in text and "a draft" not in text
        await tab.run("document.getElementById('row-1').click()")
        assert await tab.run("document.querySelectorAll('.attempts').length") == 0

    visit(body)


def test_keys(visit: Any) -> None:
    focused = "document.activeElement.id"

    async def body(tab: Tab) -> None:
        for key in "jjk":
            await tab.press(key)
        assert "number 1 of" in await tab.run(HEAD)
        await tab.press("/")
        assert await tab.run(focused) == "search"
        # Letters are text there.
        for key in "jk":
            await tab.press(key)
        assert await tab.run("document.getElementById('search').value") == "jk"
        await tab.run(changed("search", "''"))
        assert "number 1 of" in await tab.run(HEAD)
        await tab.press("Escape")
        assert await tab.run(focused) == "list"
        await tab.press("ArrowDown")
        assert "number 2 of" in await tab.run(HEAD)
        await tab.press("End")
        assert f"number {COUNT - 1} of" in await tab.run(HEAD)
        active = await tab.run("document.getElementById('list').getAttribute('aria-activedescendant')")
        assert await tab.run(f"document.getElementById({active!r}).getAttribute('aria-selected')") == "true"
        assert await tab.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"

    visit(body)


def test_light_and_dark(visit: Any) -> None:
    back = "getComputedStyle(document.body).backgroundColor"

    async def body(tab: Tab) -> None:
        seen = {}
        for scheme in ("dark", "light"):
            await tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            await tab.run("new Promise((done) => setTimeout(done, 50))")
            seen[scheme] = await tab.run(back)
        assert seen == {"dark": "rgb(20, 23, 28)", "light": "rgb(255, 255, 255)"}
        await tab.run("document.getElementById('theme').click()")
        assert await tab.run(back) == seen["dark"]
        await tab.run("document.getElementById('theme').click()")
        assert await tab.run(back) == seen["light"]
        await tab.run("localStorage.clear()")

    visit(body)


def test_the_same_question_in_the_other_run(visit: Any) -> None:
    async def body(tab: Tab) -> None:
        await tab.press("j")
        await tab.run("document.querySelector('#detail table button').click()")
        assert "number 1 of" in await tab.run(HEAD)
        assert "in run second" in await tab.run("document.getElementById('detail').textContent")
        assert await tab.run("document.getElementById('run').value") == "1"

    visit(body)
