"""kill -9 at ten moments of a scripted study, which then has to equal one that nobody disturbed; and workers that share
a study.

    python benchmarks/study_kill.py kill --out results/study-kill.jsonl
    python benchmarks/study_kill.py kill --storage postgresql://user@host/database --out results/study-kill.jsonl
    python benchmarks/study_kill.py share --storage postgresql://user@host/database --out results/study-kill.jsonl
    python benchmarks/study_kill.py report results/study-kill.jsonl

``kill`` runs the study in a process of its own, kills that at a random moment, looks at what the storage holds, and
starts the next one. All end with exit code 1 if a finished trial was lost or repeated, or the result is another one.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import click
from index_common import append, find, read, table

if TYPE_CHECKING:
    from hopgate.optimizers import FinishedTrial, SharedStudy

_SPACE = {"demos": (0, 1, 2, 4, 8), "k": (1, 2, 3, 5), "form": ("question", "keywords", "both"), "hops": (2, 3, 4)}
_GAIN = {"question": 0.2, "keywords": 0.5, "both": 0.6}

STORAGE = click.option("--storage", help="URL of PostgreSQL; a journal file in a temporary folder by default.")
TRIALS = click.option("--trials", default=30, show_default=True)
SEED = click.option("--seed", default=0, show_default=True)
OUT = click.option("--out", type=click.Path(path_type=Path), required=True, help="The file that records are added to.")


def _open(storage: str | None, name: str, seed: int) -> SharedStudy:
    from hopgate.optimizers import SharedStudy, StudySpec

    spec = StudySpec(name, ("maximize", "minimize"), _SPACE, {"program": "scripted"}, seed=seed)
    return SharedStudy.open(storage, spec)


@click.group()
def main() -> None:
    """See the module's description."""


@main.command()
@click.argument("storage")
@click.argument("name")
@click.argument("events", type=click.Path(path_type=Path))
@click.option("--trials", type=int, required=True)
@click.option("--seconds", type=float, required=True)
@click.option("--seed", type=int, required=True)
def work(storage: str, name: str, events: Path, trials: int, seconds: float, seed: int) -> None:
    """Run the study until it has as many trials (what `kill` starts)."""
    _open(None, name, seed).close()  # imports what takes long, so that kills do not all fall into that
    with events.open("a", buffering=1) as log:
        log.write("opening\n")
        with _open(storage, name, seed) as study:
            _run(study, trials, seconds, lambda event: log.write(f"{event}\n"))
        log.write("closed\n")


def _run(study: SharedStudy, trials: int, seconds: float, told: object = None) -> tuple[FinishedTrial, ...]:
    say = told if callable(told) else lambda _: None
    while len(study.finished()) < trials:
        say("asking")
        trial = study.ask()
        if trial is None:
            break
        say(f"evaluating {trial.number}")
        time.sleep(seconds)
        chosen = trial.parameters
        gain = chosen["demos"] ** 0.5 + _GAIN[chosen["form"]] - abs(chosen["k"] - 3) / 7
        say(f"telling {trial.number}")
        study.tell(trial, [gain, chosen["k"] * chosen["hops"] / 4], {"number": trial.number})
    return study.finished()


@main.command()
@STORAGE
@click.option("--kills", type=click.IntRange(1), default=10, show_default=True)
@TRIALS
@click.option("--seconds", default=0.05, show_default=True, help="What an evaluation takes.")
@SEED
@OUT
def kill(storage: str | None, kills: int, trials: int, seconds: float, seed: int, out: Path) -> None:
    """Kill a study again and again."""
    moments = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        place = storage or str(Path(folder) / "study.log")
        name = f"study-kill-{uuid.uuid4().hex[:8]}"
        with _open(None, name, seed) as study:
            undisturbed = _run(study, trials, 0.0)
        before: tuple[FinishedTrial, ...] = ()
        sessions: list[dict[str, object]] = []
        for number in range(kills + 1):
            last = number == kills
            events = Path(folder) / f"events-{number}.txt"
            begun = _start(place, name, events, trials, seconds, seed)
            if not last:
                # At a random event of this session, and a random time after it.
                _reach(begun, events, moments.randint(1, max(1, 3 * 2 * trials // (kills + 1))))
                time.sleep(moments.random() * seconds)
                begun.kill()
            begun.wait()
            told = _events(events)
            with _open(place, name, seed) as study:
                now = study.finished()
            again = _evaluated(told) & {trial.number for trial in before}
            gone = sum(trial not in now for trial in before)
            while_ = "to its end" if last else f"while {told[-1]}" if told else "before it opened"
            counts = {"before": len(before), "after": len(now), "lost": gone, "repeated": len(again)}
            sessions.append({"session": number + 1, "killed": while_, **counts})
            before = now
    same = before == undisturbed
    append(out, {"kind": "kill", "storage": _kind(storage), "seed": seed, "same": same, "sessions": sessions})
    _verdict(out)


@main.command()
@STORAGE
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True)
@TRIALS
@click.option("--seconds", default=0.2, show_default=True, help="What an evaluation takes.")
@SEED
@OUT
def share(storage: str | None, workers: int, trials: int, seconds: float, seed: int, out: Path) -> None:
    """Let several processes work on one study."""
    with tempfile.TemporaryDirectory() as folder:
        place = storage or str(Path(folder) / "study.log")
        name = f"study-share-{uuid.uuid4().hex[:8]}"
        logs = [Path(folder) / f"events-{number}.txt" for number in range(workers)]
        with _open(place, name, seed):
            pass  # so that no worker has to begin it
        begun = [_start(place, name, log, trials, seconds, seed) for log in logs]
        codes = [process.wait() for process in begun]
        with _open(place, name, seed) as study:
            finished = {trial.number for trial in study.finished()}
        evaluated = [_evaluated(_events(log)) for log in logs]
    twice = sum(map(len, evaluated)) - len(set().union(*evaluated))
    counts = {"finished": len(finished), "by_worker": [len(one & finished) for one in evaluated], "twice": twice}
    append(out, {"kind": "share", "storage": _kind(storage), "seed": seed, "failed": sum(map(bool, codes)), **counts})
    _verdict(out)


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
def report(path: Path) -> None:
    """Say what is recorded."""
    _verdict(path)


def _verdict(path: Path) -> None:
    records, bad = read(path), False
    for record in find(records, kind="kill"):
        sessions = record["sessions"]
        columns = ("session", "killed", "before", "after", "lost", "repeated")
        rows = [[str(session[column]) for column in columns] for session in sessions]
        kills, spoilt = len(sessions) - 1, any(session["lost"] or session["repeated"] for session in sessions)
        bad = bad or spoilt or not record["same"]
        print(f"{record['storage']}, {kills} kills, seed {record['seed']}:\n")
        table(["session", "killed", "finished before", "after", "lost", "repeated"], rows)
        same = "the same as" if record["same"] else "OTHERS THAN"
        print(f"\n{sessions[-1]['after']} trials; {same} in a study that nobody disturbed.\n")
    for record in find(records, kind="share"):
        by, few = " and ".join(map(str, record["by_worker"])), min(record["by_worker"]) == 0
        bad = bad or bool(record["twice"] or record["failed"]) or few
        failed = f", {record['failed']} workers failed" if record["failed"] else ""
        print(
            f"{record['storage']}, {len(record['by_worker'])} workers: {record['finished']} trials finished, {by} by "
            f"each, {record['twice']} evaluated twice{failed}.\n"
        )
    if bad:
        sys.exit(1)


def _events(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def _evaluated(told: list[str]) -> set[int]:
    """Numbers of the trials whose evaluation was begun."""
    return {int(event.split()[1]) for event in told if event.startswith("evaluating")}


def _kind(storage: str | None) -> str:
    """What kind of storage it is: a record holds no address."""
    return "journal file" if storage is None else "PostgreSQL"


def _start(place: str, name: str, events: Path, trials: int, seconds: float, seed: int) -> subprocess.Popen[bytes]:
    options = ["--trials", str(trials), "--seconds", str(seconds), "--seed", str(seed)]
    return subprocess.Popen([sys.executable, __file__, "work", place, name, str(events), *options])


def _reach(process: subprocess.Popen[bytes], events: Path, count: int) -> None:
    while process.poll() is None and not (events.exists() and events.read_text().count("\n") >= count):
        time.sleep(0.001)


if __name__ == "__main__":
    main()
