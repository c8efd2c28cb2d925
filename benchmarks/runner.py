"""The runner beside dspy.Evaluate: own time for a question, and memory, with a scripted LM.

    python benchmarks/runner.py run --questions 5000 --workers 8 --out results/runner.jsonl
    python benchmarks/runner.py report results/runner.jsonl

Two programs: one that returns at once, so that all that is measured is the runner's own time, and one that asks a
scripted LM once. Both runners score each answer in all the ways of a run file; ours also meters and writes it. The two
take turns, and the better of their rounds counts, since the machine may be busy with something else meanwhile.
"""

from __future__ import annotations

import gc
import logging
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import dspy
from dspy.clients.base_lm import GLOBAL_HISTORY
from index_common import append, read, resident_mb, table

from hopgate.evaluation.questions import Question
from hopgate.evaluation.runner import Progress, evaluate
from hopgate.evaluation.scoring import score_answer
from hopgate.lms import CompactAdapter
from hopgate.lms.testing import Reply, scripted_lm
from hopgate.programs import Direct


class Nothing(dspy.Module):
    """Answers at once, without an LM."""

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=question.rsplit(" ", 1)[-1])


class _Forgetful(list):
    """Keeps none of the prompts, which a scripted LM collects for tests."""

    def append(self, item: Any) -> None:
        return


def reply(prompt: str) -> Reply:
    """The number that was asked for."""
    return Reply(re.findall(r"number (\d+)", prompt)[-1])


def ours(program: dspy.Module, questions: list[Question], workers: int, memory: list[float]) -> None:
    """Evaluate with hopgate."""

    def watch(progress: Progress) -> None:
        if progress.done % max(1, progress.total // 10) == 0:
            memory.append(resident_mb())

    with tempfile.TemporaryDirectory() as folder:
        run = evaluate(program, questions, Path(folder) / "run.jsonl", workers=workers, on_progress=watch)
        if len(run.answered) != len(questions):
            raise SystemExit(f"{len(run.failed)} questions failed: {run.failed[:1]}")


def theirs(program: dspy.Module, questions: list[Question], workers: int, memory: list[float]) -> None:
    """Evaluate with DSPy."""
    examples = [dspy.Example(question=q.question, gold=q).with_inputs("question") for q in questions]

    def metric(gold: Any, prediction: Any, trace: Any = None) -> bool:
        return score_answer(gold.gold, prediction.answer)["em"]

    memory.append(resident_mb())
    dspy.Evaluate(devset=examples, metric=metric, num_threads=workers)(program)
    memory.append(resident_mb())


@click.group()
def main() -> None:
    """See the module's description."""


@main.command()
@click.option("--questions", "count", default=5000, show_default=True)
@click.option("--workers", default=8, show_default=True)
@click.option("--rounds", default=2, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
def run(count: int, workers: int, rounds: int, out: Path) -> None:
    """Record milliseconds a question of both runners, and the memory while ours ran."""
    logging.getLogger("dspy").setLevel(logging.ERROR)
    questions = [Question(f"q{n}", f"What is number {n}", (str(n),)) for n in range(count)]
    lm: Any = scripted_lm(reply)
    lm.engine.prompts = _Forgetful()
    programs: list[tuple[str, Callable[[], dspy.Module]]] = [("returns at once", Nothing), ("scripted LM", Direct)]
    for name, make in programs:
        best = {ours: float("inf"), theirs: float("inf")}
        memory: list[float] = []
        for _ in range(rounds):
            for runner in (ours, theirs):
                GLOBAL_HISTORY.clear()
                gc.collect()
                seen: list[float] = []
                with dspy.context(lm=lm, adapter=CompactAdapter()):
                    start = time.perf_counter()
                    runner(make(), questions, workers, seen)
                    best[runner] = min(best[runner], time.perf_counter() - start)
                if runner is ours and not memory:
                    memory = seen
        mine, other = (round(1000 * best[runner] / count, 4) for runner in (ours, theirs))
        key = {"program": name, "questions": count, "workers": workers, "rounds": rounds}
        append(out, {**key, "hopgate_ms": mine, "dspy_ms": other, "memory_mb": memory})


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
def report(path: Path) -> None:
    """Print a Markdown table."""
    rows = [
        [
            record["program"],
            f"{record['questions']:,}",
            record["workers"],
            f"{record['hopgate_ms']:.2f}",
            f"{record['dspy_ms']:.2f}",
            f"{record['hopgate_ms'] / record['dspy_ms']:.2f}",
            " ".join(f"{value:.0f}" for value in record["memory_mb"]),
        ]
        for record in read(path)
    ]
    header = ["program", "questions", "workers", "hopgate, ms a question", "dspy.Evaluate, ms", "ratio"]
    table([*header, "memory while hopgate ran, MB"], rows)


if __name__ == "__main__":
    main()
