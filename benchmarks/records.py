"""Recorded runs: one JSON line a question, written as it is answered, so that a run that was stopped goes on.

A record holds ids, sub-questions, drafts, confidences, decisions, passage ids, answers, scores and costs, and none of a
data set's questions or passages.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from dspy.utils.callback import BaseCallback

from hopgate.evaluation import cover_em, exact_match, f1
from hopgate.programs import Trajectory


def read(path: Path) -> list[dict[str, Any]]:
    """All records of a file; none if there is no file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return [json.loads(text) for text in file]


def questions(data: Path | None, split: str | None, first: int) -> Iterator[dict[str, Any]]:
    """Questions of a folder, or of the bundled sample if there is none."""
    if data is None:
        from hopgate.evaluation import sample_questions

        rows = [asdict(question) for question in sample_questions(split)]  # type: ignore[arg-type]
    else:
        rows = read(data / "questions.jsonl")
    yield from rows[:first]


class Prompts(BaseCallback):
    """Counts the characters of all prompts, and of those that no earlier prompt began with.

    The second is what a perfect prefix cache would have to read; beside it stands what the backend really read.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.characters = 0
        self.distinct = 0

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Count one prompt."""
        text = "\0".join(f"{message['role']}:{message['content']}" for message in inputs["messages"])
        self.characters += len(text)
        self.distinct += len(text) - max((len(os.path.commonprefix([text, old])) for old in self.texts), default=0)  # noqa: RUF071
        self.texts.append(text)


def run(
    solve: Callable[[str], dspy.Prediction], rows: Iterable[dict[str, Any]], out: Path, extra: dict[str, Any]
) -> None:
    """Answer the questions that are not in ``out`` yet."""
    done = {record["id"] for record in read(out)}
    prompts: Prompts | None = None
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a", encoding="utf-8") as file:
        for row in rows:
            if row["id"] in done:
                continue
            prompts = Prompts() if prompts is None else prompts
            before = (prompts.characters, prompts.distinct)
            with dspy.context(callbacks=[*dspy.settings.callbacks, prompts]):
                prediction = solve(row["question"])
            seen = {"prompt_characters": prompts.characters - before[0], "distinct": prompts.distinct - before[1]}
            file.write(json.dumps({**_record(row, prediction), **seen, **extra}, ensure_ascii=False) + "\n")
            file.flush()


def _record(row: dict[str, Any], prediction: dspy.Prediction) -> dict[str, Any]:
    trajectory: Trajectory = prediction.trajectory
    gold = row["answers"]
    return {
        "id": row["id"],
        "world": row.get("world"),
        "answer": prediction.answer,
        "confidence": trajectory.answer_confidence.mean if trajectory.answer_confidence else None,
        "em": exact_match(prediction.answer, gold),
        "f1": f1(prediction.answer, gold),
        "cover": cover_em(prediction.answer, gold),
        "hops": [
            {
                "sub_question": hop.sub_question,
                "draft": hop.draft,
                "confidence": hop.confidence.mean if hop.confidence else None,
                "source": hop.source,
                "passages": [passage.id for passage in hop.passages],
                "answer": hop.answer,
                "answer_confidence": hop.answer_confidence.mean if hop.answer_confidence else None,
            }
            for hop in trajectory.hops
        ],
        "passages": [passage.id for passage in trajectory.passages],
        "supporting": row.get("supporting_ids"),
        "stop_reason": trajectory.stop_reason,
        "cost": asdict(prediction.cost),
    }


def interval(values: Iterable[float]) -> str:
    """Mean with a 95 % bootstrap interval over questions."""
    data = np.array([float(value) for value in values])
    if not len(data):
        return "-"
    rng = np.random.default_rng(0)
    means = data[rng.integers(0, len(data), (5000, len(data)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return f"{data.mean():.2f} [{low:.2f}, {high:.2f}]"


def share(groups: Sequence[Sequence[bool]], other: Sequence[Sequence[bool]] | None = None) -> str:
    """Share of true values over all groups (less that of ``other``), with a 95 % bootstrap interval over groups."""
    rng = np.random.default_rng(0)

    def draw(chosen: Sequence[Sequence[bool]]) -> float:
        picked = [chosen[i] for i in rng.integers(0, len(chosen), len(chosen))]
        return float(np.mean([value for group in picked for value in group]))

    def mean(chosen: Sequence[Sequence[bool]]) -> float:
        return float(np.mean([value for group in chosen for value in group]))

    low, high = np.percentile([draw(groups) - (draw(other) if other else 0.0) for _ in range(5000)], [2.5, 97.5])
    return f"{mean(groups) - (mean(other) if other else 0.0):.2f} [{low:.2f}, {high:.2f}]"
