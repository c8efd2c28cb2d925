"""Ten thousand generated requests against ``hopgate index serve``: no answer of 500 or above, and memory stays flat.

    python3.11 -m venv ST && ST/bin/pip install schemathesis httpx numpy
    ST/bin/python benchmarks/index_http.py INDEX --hopgate BIN/hopgate --out results/index-http.jsonl

Runs in an environment of its own; the server is started with the other environment's ``hopgate``. schemathesis makes
requests from the server's /openapi.json, half of them such as the schema allows, half such as it does not; of each 500
requests 50 are junk beside the schema: random bytes, broken JSON, deep nesting, wrong types of content, unknown paths
and methods. Seeds are fixed. Every 500 requests the server's resident memory is recorded.

Exits with 1 on a status of 500 or above, if the server ends or no longer answers, or if memory is not flat: its median
over the last quarter of the run may exceed that over the second quarter by 5 % at most (the first quarter fills
caches).
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import hypothesis
import schemathesis
from index_common import append, environment, resident_mb
from schemathesis import GenerationMode

BATCH = 500
JUNK = 50
GROWTH = 1.05
TIMEOUT = 60.0


def main() -> None:
    """Measure, record and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("index")
    parser.add_argument("--hopgate", required=True, help="the program to start the server with")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--log", type=Path, default=Path("index-http.log"))
    arguments = parser.parse_args()
    command = [arguments.hopgate, "index", "serve", arguments.index, "--port", "0"]
    with arguments.log.open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment(arguments.threads))
    try:
        url = _url(server, arguments.log)
        sys.exit(_run(server, url, arguments.requests, arguments.out))
    finally:
        server.terminate()
        server.wait(30)


def _url(server: subprocess.Popen[bytes], log: Path) -> str:
    """The address that the server prints once it is ready."""
    for _ in range(600):
        found = re.search(r"https?://[\w.\[\]:]+\d", log.read_text(errors="replace"))
        if found:
            return found.group()
        if server.poll() is not None:
            break
        time.sleep(0.2)
    sys.exit(f"the server did not start; see {log}")


def _run(server: subprocess.Popen[bytes], url: str, requests: int, out: Path) -> int:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    total: Counter[str] = Counter()
    memory: list[float] = []
    faults: list[str] = []
    rng = random.Random(0)
    with httpx.Client(base_url=url, timeout=TIMEOUT) as client:
        generated = _generated(operations, lambda: requests - sum(total.values()))
        for batch in range(1, -(-requests // BATCH) + 1):
            counts: Counter[str] = Counter()
            for number in range(min(BATCH, requests - sum(total.values()))):
                label, status = _junk(client, rng) if number % (BATCH // JUNK) == 0 else next(generated)
                counts[status] += 1
                if status.startswith("5"):
                    faults.append(f"{status} from {label}")
            if server.poll() is not None:
                faults.append(f"the server ended with {server.returncode}")
                break
            total += counts
            memory.append(resident_mb(server.pid))
            done = sum(total.values())
            append(
                out, {"batch": batch, "requests": done, "statuses": dict(sorted(counts.items())), "rss_mb": memory[-1]}
            )
            print(f"{done:6} requests, {memory[-1]:.0f} MB, {dict(sorted(counts.items()))}", flush=True)
        if server.poll() is None and client.get("/healthz").status_code != 200:
            faults.append("/healthz no longer answers 200")
    quarter = len(memory) // 4
    growth = statistics.median(memory[-quarter:]) / statistics.median(memory[quarter : 2 * quarter]) if quarter else 1.0
    flat = growth <= GROWTH
    result = {"requests": sum(total.values()), "statuses": dict(sorted(total.items())), "growth": round(growth, 4)}
    append(out, {**result, "flat": flat, "faults": faults[:50]})
    print(f"{result}; memory {'flat' if flat else 'NOT flat'}; faults: {faults[:50] or 'none'}")
    return int(bool(faults) or not flat)


def _generated(operations: list, left: Callable[[], int]) -> Iterator[tuple[str, str]]:
    """Requests made from the schema, each operation and mode in turn, a handful at a time."""
    for seed in itertools.count():
        for operation, mode in itertools.product(operations, (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)):
            if left() <= 0:
                return
            answers: list[tuple[str, str]] = []
            try:
                strategy = operation.as_strategy(generation_mode=mode)
                _draw(strategy, seed, f"{operation.label} ({mode.value})", answers)
            except hypothesis.errors.Unsatisfiable:
                continue  # an operation without input cannot be called wrongly
            yield from answers


def _draw(strategy, seed: int, label: str, answers: list[tuple[str, str]]) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=10,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=strategy)
    def call(case: schemathesis.Case) -> None:
        try:
            status = str(case.call(timeout=TIMEOUT).status_code)
        except OSError as error:  # requests' errors are of this kind
            status = type(error).__name__
        answers.append((label, status))

    call()


def _junk(client: httpx.Client, rng: random.Random) -> tuple[str, str]:
    """One request beside the schema."""
    path = rng.choice(["/api/search", "/search_many", "/rerank", "/passages", "/info", "/", "/no/such/path", "/%00"])
    bodies = {
        "bytes": rng.randbytes(rng.randrange(2000)),
        "half a JSON object": b'{"query": "',
        "deep nesting": b"[" * 20_000,
        "wrong types": b'{"query": {"a": []}, "queries": 5, "k": "many", "ids": [null], "passages": [[]]}',
        "numbers": b'{"query": "who", "queries": ["who"], "k": 1e400}',
        "a megabyte": b'{"query": "' + b"a" * 2**20 + b'"}',
        "half a character": b'{"query": "\\ud800", "queries": ["\\ud800"], "ids": ["\\ud800"]}',
        "nothing": b"",
    }
    name = rng.choice(sorted(bodies))
    kind = rng.choice(["application/json", "text/plain", "application/x-www-form-urlencoded", "\xff", ""])
    method = rng.choice(["POST", "POST", "POST", "GET", "PUT", "DELETE", "OPTIONS", "BREW"])
    headers = [(b"content-type", kind.encode("latin-1"))]
    label = f"{method} {path} with {name} as {kind!r}"
    try:
        return label, str(client.request(method, path, content=bodies[name], headers=headers).status_code)
    except httpx.HTTPError as error:
        return label, type(error).__name__


if __name__ == "__main__":
    main()
