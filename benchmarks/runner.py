"""The runner beside dspy.Evaluate: own time for a question, and memory, with a scripted LM.

python benchmarks/runner.py --questions 5000 --workers 8

Two programs: one that returns at once, so that all that is measured is the runner's own time, and one that asks a
scripted LM once. Both runners score each answer in all the ways of a run file; ours also meters and writes it. The two
take turns, and the better of their rounds counts, since the machine may be busy with something else meanwhile.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import dspy
from dspy.clients.base_lm import GLOBAL_HISTORY

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


def megabytes() -> float:
    """Resident memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def ours(program: dspy.Module, questions: list[Question], workers: int, memory: list[float]) -> None:
    """Evaluate with hopgate."""

    def watch(progress: Progress) -> None:
        if progress.done % max(1, progress.total // 10) == 0:
            memory.append(megabytes())

    with tempfile.TemporaryDirectory() as folder:
        run = evaluate(program, questions, Path(folder) / "run.jsonl", workers=workers, on_progress=watch)
        if len(run.answered) != len(questions):
            raise SystemExit(f"{len(run.failed)} questions failed: {run.failed[:1]}")


def theirs(program: dspy.Module, questions: list[Question], workers: int, memory: list[float]) -> None:
    """Evaluate with DSPy."""
    examples = [dspy.Example(question=q.question, gold=q).with_inputs("question") for q in questions]

    def metric(gold: Any, prediction: Any, trace: Any = None) -> bool:
        return score_answer(gold.gold, prediction.answer)["em"]

    memory.append(megabytes())
    dspy.Evaluate(devset=examples, metric=metric, num_threads=workers)(program)
    memory.append(megabytes())


@click.command()
@click.option("--questions", "count", default=5000, show_default=True)
@click.option("--workers", default=8, show_default=True)
@click.option("--rounds", default=2, show_default=True)
def main(count: int, workers: int, rounds: int) -> None:
    """Print milliseconds a question of both runners, their ratio, and the memory while ours ran."""
    logging.getLogger("dspy").setLevel(logging.ERROR)
    questions = [Question(f"q{n}", f"What is number {n}", (str(n),)) for n in range(count)]
    lm: Any = scripted_lm(reply)
    lm.engine.prompts = _Forgetful()
    print(f"{count} questions, {workers} workers, best of {rounds} rounds, {os.cpu_count()} cores")
    print("| program | hopgate ms | dspy.Evaluate ms | ratio | memory while hopgate ran, MB |")
    print("|---|---|---|---|---|")
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
        mine, other = (1000 * best[runner] / count for runner in (ours, theirs))
        curve = " ".join(f"{value:.0f}" for value in memory)
        print(f"| {name} | {mine:.3f} | {other:.3f} | {mine / other:.2f} | {curve} |", flush=True)


if __name__ == "__main__":
    main()
