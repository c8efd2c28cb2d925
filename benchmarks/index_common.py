"""What the benchmarks of the index room share: resumable records, child processes and their memory, percentiles and
bootstrap intervals, data folders.

Imports numpy alone (and scipy, for intervals), so that it serves a parent that must stay small, see :func:`child`, and
another environment without hopgate. Records hold ids and numbers, and none of a data set's questions or passages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

Record = dict[str, Any]


# --- records ----------------------------------------------------------------------------------------------------------


def read(path: Path) -> list[Record]:
    """All records of a file, none if there is no file; a last line that was cut off by a kill is left out."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line[-1] == "\n"]


def append(path: Path, *records: Record) -> None:
    """Add records to a file, on the disk before this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_bytes()[-1:] not in (b"", b"\n"):  # its last line was cut off
        path.write_bytes(path.read_bytes().rpartition(b"\n")[0] + b"\n")
    with path.open("ab") as file:
        file.write("".join(json.dumps(record) + "\n" for record in records).encode())
        file.flush()
        os.fsync(file.fileno())


def find(records: Iterable[Record], **wanted: Any) -> list[Record]:
    """The records with these values."""
    return [record for record in records if all(record.get(key) == value for key, value in wanted.items())]


def rows_of(text: str | None) -> slice:
    """``61:150`` as a slice of the 61st to the 150th, both included; all without a text."""
    if not text:
        return slice(None)
    first, _, last = text.partition(":")
    return slice(int(first or 1) - 1, int(last) if last else None)


# --- data -------------------------------------------------------------------------------------------------------------


def corpus(data: Path, first: int | None = None) -> list[Record]:
    """Passages (``id``, ``title``, ``text``) of a folder's ``corpus.jsonl``, or of a file."""
    path = data / "corpus.jsonl" if data.is_dir() else data
    with path.open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file if line.strip()]
    return [{**record, "id": str(record["id"])} for record in records[:first]]


def questions(data: Path, rows: str | None = None) -> list[Record]:
    """Questions of a folder's ``questions.jsonl``."""
    with (data / "questions.jsonl").open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()][rows_of(rows)]


def long_text(passage: Mapping[str, Any]) -> str:
    """Title and text as hopgate encodes them."""
    return f"{passage['title']} | {passage['text']}" if passage.get("title") else str(passage["text"])


def supporting(question: Record, passages: Sequence[Record]) -> list[str]:
    """Ids of a question's supporting passages, which are labelled by id or by title; empty if they are not labelled."""
    if "supporting_ids" in question:
        return [str(identifier) for identifier in question["supporting_ids"]]
    titles = set(question.get("supporting_titles", ()))
    return [passage["id"] for passage in passages if passage["title"] in titles]


def hops(question: Record, passages: Mapping[str, Record]) -> list[Record]:
    """The gold sub-questions of a MuSiQue question.

    ``#1`` is filled in by the gold answer of the first, and so on. MuSiQue's supporting passages are not in the order
    of the hops, so those of a hop are the question's supporting passages whose title or text holds the hop's answer
    (as whole words, after the normalization of exact match). Often that is more than one: the passage of the next hop
    names the answer too, and finding either counts. A hop whose answer no supporting passage holds has none.

    Returns:
        Objects of ``id`` (``question/hop``), ``question``, ``answer``, ``earlier`` (answers of earlier hops) and
        ``supporting`` (ids).
    """
    from hopgate.evaluation import normalize

    found: list[Record] = []
    answers: list[str] = []
    for number, hop in enumerate(question.get("decomposition", ()), 1):
        text = hop["question"]
        for earlier, answer in reversed(list(enumerate(answers, 1))):
            text = text.replace(f"#{earlier}", answer)
        wanted = f" {normalize(hop['answer'])} "
        holding = [
            identifier
            for identifier in map(str, question["supporting_ids"])
            if wanted in f" {normalize(long_text(passages[identifier]))} "
        ]
        found.append(
            {
                "id": f"{question['id']}/{number}",
                "question": text,
                "answer": hop["answer"],
                "earlier": list(answers),
                "supporting": holding if wanted.strip() else [],
            }
        )
        answers.append(hop["answer"])
    return found


# --- child processes --------------------------------------------------------------------------------------------------


def environment(threads: int, python: Path | None = None) -> dict[str, str]:
    """The environment of a child: so many threads, nothing from the network, and its own environment's programs."""
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), str(threads))
    # torch looks for ninja on the path when it loads an extension.
    programs = f"{(python or Path(sys.executable)).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, **counts, "PATH": programs, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def child(command: Sequence[str], log: Path, threads: int, python: Path | None = None) -> Record:
    """Run a script to its end, its output going to a log.

    Returns:
        ``wall`` seconds of the whole process and its ``peak_mb``, the peak resident memory of it and of its own
        children. (That of a child starts at what its parent holds, so the parent must not load torch.)

    Raises:
        SystemExit: It failed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    with log.open("w") as file:
        process = subprocess.Popen(
            [str(python or sys.executable), *command],
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment(threads, python),
        )
        usage = _wait(process)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed with {process.returncode}; see {log}")
    return {"wall": round(time.perf_counter() - start, 3), **usage}


def _wait(process: subprocess.Popen[Any]) -> Record:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    kilobytes = usage.ru_maxrss if sys.platform != "darwin" else usage.ru_maxrss / 1024
    return {"peak_mb": round(kilobytes / 1024, 1)}


class Served:
    """A child that answers queries, one at a time; see :func:`serve`."""

    def __init__(self, command: Sequence[str], log: Path, threads: int, python: Path | None = None) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        with log.open("w") as file:
            self._process = subprocess.Popen(
                [str(python or sys.executable), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env=environment(threads, python),
            )

    def ask(self, query: str) -> Record:
        """``seconds`` that the search took, and the ``ids`` it found."""
        into, out = self._process.stdin, self._process.stdout
        try:
            if into is None or out is None:
                raise BrokenPipeError
            into.write(json.dumps(query) + "\n")
            into.flush()
            return json.loads(out.readline())
        except (BrokenPipeError, ValueError):
            self._process.kill()
            sys.exit(f"the search process died; see {self._log}")

    def close(self) -> Record:
        """End it; returns its ``peak_mb``."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        return _wait(self._process)


def serve(load: Callable[[], Callable[[str], list[str]]]) -> None:
    """Answer queries from standard input until it ends; what libraries print goes to standard error.

    Args:
        load: Returns the search, a function of a query that returns ids.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    search = load()
    for line in sys.stdin:
        query = json.loads(line)
        start = time.perf_counter()
        ids = search(query)
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": round(seconds, 6), "ids": ids}), file=answers, flush=True)


def resident_mb(pid: int | str = "self") -> float:
    """Resident memory of a running process at this moment."""
    with Path(f"/proc/{pid}/status").open() as file:
        return next(round(int(line.split()[1]) / 1024, 1) for line in file if line.startswith("VmRSS"))


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def timed(into: Record, name: str = "seconds") -> Iterator[None]:
    """Write down the seconds that the body takes."""
    start = time.perf_counter()
    yield
    into[name] = round(time.perf_counter() - start, 3)


# --- statistics -------------------------------------------------------------------------------------------------------


def interval(
    samples: Sequence[Any], statistic: Callable[..., Any] = np.mean, *, axis: int = -1, resamples: int = 5000
) -> tuple[float, float, float]:
    """A statistic with its 95 % bootstrap interval (percentiles); several samples are drawn in pairs.

    Args:
        samples: One array, or several whose last axis is paired; see scipy.stats.bootstrap.
        statistic: Takes as many arrays and ``axis``.
        axis: The axis that is drawn from.
        resamples: How many draws.
    """
    from scipy.stats import bootstrap

    arrays = [np.asarray(sample, float) for sample in samples]
    value = float(statistic(*arrays, axis=axis))
    if arrays[0].shape[axis] < 2:
        return value, float("nan"), float("nan")
    drawn = bootstrap(
        arrays,
        statistic,
        n_resamples=resamples,
        paired=True,
        vectorized=True,
        axis=axis,
        batch=250,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return value, float(drawn.confidence_interval.low), float(drawn.confidence_interval.high)


def shown(values: tuple[float, float, float], digits: int = 2) -> str:
    """``.52 [.48, .56]`` of what :func:`interval` returns."""
    value, low, high = (f"{number:.{digits}f}" for number in values)
    return f"{value} [{low}, {high}]"


def mean_interval(values: Iterable[float], digits: int = 3) -> str:
    """The mean with its interval, as text."""
    found = list(values)
    return shown(interval([found]), digits) if found else "-"


def difference_interval(values: Sequence[float], others: Sequence[float], digits: int = 3) -> str:
    """The mean difference of paired values with its interval, as text."""
    return mean_interval([a - b for a, b in zip(values, others, strict=True)], digits)


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a Markdown table."""
    print(f"| {' | '.join(header)} |")
    print("|---" * len(header) + "|")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |")
    print()
