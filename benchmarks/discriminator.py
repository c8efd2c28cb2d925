"""How well the discriminator tells off-topic answers: formulations of its prompts on labelled answers.

``results/discriminator-pairs.jsonl`` names a second answer beside the gold one for questions of the train folders: the
answer of an earlier hop (``hop:1``), the title of a supporting passage (``title:2``) or another question's gold answer
(``gold:ID``), each checked by hand to be of another kind than the question asks for. The gold answer is on-topic. The
formulation is chosen on the first half of the questions and reported on the second.

    python benchmarks/discriminator.py run --data DIR --data DIR --out benchmarks/results/discriminator.jsonl
    python benchmarks/discriminator.py report benchmarks/results/discriminator.jsonl
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from index_common import Record, append, find, read, table
from scipy.special import expit, logit

if TYPE_CHECKING:
    from hopgate.evaluation import Question
    from hopgate.evaluation.statistics import Interval

PAIRS = Path(__file__).parent / "results" / "discriminator-pairs.jsonl"
FORMULATIONS = {
    "naive": "the question and the answer, no examples",
    "kinds": "the kinds named first, no examples",
    "examples": "eight worked examples, no kinds",
    "kinds_examples": "the kinds named first, eight worked examples",
    "both_kinds": "as before, and the answer's own kind is said before the verdict",
    "calibrated": "kinds_examples, less the margin of the answer N/A (Zhao et al. 2021, Calibrate before use)",
}

ANSWER_KINDS = ("a person", "a river", "a town", "a person", "a kind of school", "a film", "a date", "a year")
"""The kinds of the worked examples' answers."""

KEPT = 0.85
"""Share of the gold answers that a threshold has to keep to compare formulations."""

KEPT_BY_DEFAULT = 0.9
"""That of the discriminator's own threshold, as each correction is dear."""


@click.group()
def main() -> None:
    """See the module's description."""


@main.command()
@click.option("--data", "folders", multiple=True, required=True, help="A folder or file of questions.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--lm", "model", default="embedded/qwen2.5-coder-1.5b", show_default=True)
@click.option("--formulation", "names", type=click.Choice(list(FORMULATIONS)), multiple=True, default=FORMULATIONS)
@click.option("--seconds", type=float, help="Stop after so long; the next run goes on.")
def run(folders: tuple[str, ...], out: Path, model: str, names: tuple[str, ...], seconds: float | None) -> None:
    """Record verdicts; a run that was stopped goes on where it was."""
    import dspy

    from hopgate.lms import CompactAdapter, lm_from_config

    done = {(record["id"], record["answer"], record["formulation"]) for record in read(out)}
    table_of_lm: dict[str, Any] = {"model": model}
    if model.startswith("embedded/"):
        table_of_lm["slots"] = len(names) + 2  # each prompt keeps its prefix, those that name kinds too
    start = time.monotonic()
    with dspy.context(lm=lm_from_config(table_of_lm), adapter=CompactAdapter()):
        for question, answers, half in _pairs(folders):
            for source, answer in answers.items():
                for name in names:
                    if (question.id, source, name) in done:
                        continue
                    if seconds is not None and time.monotonic() - start > seconds:
                        raise SystemExit(f"stopped after {seconds:.0f} s; run again to go on")
                    began = time.perf_counter()
                    judged = _judged(name, question.question, answer)
                    append(
                        out,
                        {
                            "id": question.id, "half": half, "answer": source, "formulation": name,
                            "on_topic": source == "gold", "spoken": judged.spoken, "probability": judged.probability,
                            "seconds": round(time.perf_counter() - began, 3),
                        },
                    )  # fmt: skip


def _pairs(folders: tuple[str, ...]) -> Iterator[tuple[Question, dict[str, str], str]]:
    from hopgate.evaluation import load_questions

    known = {question.id: question for folder in folders for question in load_questions(folder)}
    for pair in read(PAIRS):
        question, (kind, _, which) = known[pair["id"]], pair["other"].partition(":")
        if kind == "gold":
            other = known[which].answers[0]
        elif kind == "hop":
            other = question.decomposition[int(which) - 1].answer
        else:
            other = question.supporting_titles[int(which) - 1]
        yield question, {"gold": question.answers[0], pair["other"]: other}, pair["half"]


def _judged(name: str, question: str, answer: str) -> Any:
    """The verdict of a formulation, as ``spoken`` and ``probability``."""
    import dspy

    from hopgate.programs import Discriminator
    from hopgate.programs.discriminator import KIND_EXAMPLES

    examples = list(KIND_EXAMPLES) if name not in ("naive", "kinds") else []
    if name == "both_kinds":
        examples = [{**one, "candidate_kind": kind} for one, kind in zip(examples, ANSWER_KINDS, strict=True)]
    discriminator = Discriminator(examples=examples)
    signature = discriminator.judge.signature
    if name == "both_kinds":
        asked = (
            "Say what kind of thing the answer is, then whether the question admits that kind. It need not be right."
        )
        field = dspy.OutputField(desc="kind of thing that the answer is", prefix="Answer is:")
        discriminator.judge.signature = signature.prepend("candidate_kind", field, str).with_instructions(asked)
    if name in ("naive", "examples"):
        asked = "Is the answer, right or wrong, of a kind that the question asks for? Reply yes or no."
        discriminator.judge.signature = signature.delete("kinds").with_instructions(asked)
    kinds = "-" if name in ("naive", "examples") else None
    with dspy.context(trace=[]):
        judged = discriminator(question=question, answer=answer, kinds=kinds)
        if name == "calibrated":
            nothing = discriminator(question=question, answer="N/A", kinds=judged.kinds)
            if judged.probability is not None and nothing.probability is not None:
                judged.probability = float(expit(logit(judged.probability) - logit(nothing.probability)))
    return judged


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
def report(path: Path) -> None:
    """Print a Markdown table by formulation and half, with 95 % intervals over questions.

    The threshold of a formulation is the highest that keeps 85 % of the gold answers of the first half, as most answers
    of a solver are on-topic. Precision and recall are those of "off-topic". Rows of "both" halves have the highest
    threshold that keeps 90 % there.
    """
    from hopgate.evaluation.statistics import share_interval

    records, rows = read(path), []
    for name in FORMULATIONS:
        first, both = find(records, formulation=name, half="first"), find(records, formulation=name)
        thresholds = {"first": _threshold(first, KEPT), "second": _threshold(first, KEPT)}
        for half, threshold in {**thresholds, "both": _threshold(both, KEPT_BY_DEFAULT)}.items():
            judged = both if half == "both" else find(both, half=half)
            own = [r for r in judged if r["probability"] is not None]
            right, wrong = find(own, on_topic=True), find(own, on_topic=False)
            if not right or not wrong:
                continue
            flagged = [record for record in own if record["probability"] < threshold]
            hits = len(find(flagged, on_topic=False))
            spoken = f"{len(find(right, spoken=True))}/{len(right)}, {len(find(wrong, spoken=False))}/{len(wrong)}"
            rows.append(
                [
                    name, half, len(own), spoken, _text(_auroc(own)), f"{threshold:.3f}",
                    _text(share_interval(hits, len(flagged))), _text(share_interval(hits, len(wrong))),
                    f"{np.median([record['seconds'] for record in own]):.1f}",
                ]
            )  # fmt: skip
    header = "formulation, half, answers, spoken: gold kept and other flagged, AUROC, threshold, precision, recall, s"
    table([cell.strip() for cell in header.split(",")], rows)


def _threshold(records: list[Record], kept: float) -> float:
    scored = [record for record in records if record["probability"] is not None]
    gold = np.array([record["probability"] for record in find(scored, on_topic=True)])
    ranked = np.unique([record["probability"] for record in scored])
    cuts = (ranked[1:] + ranked[:-1]) / 2  # between two scores, where a little change does no harm
    keeping = [float(cut) for cut in cuts if len(gold) and (gold >= cut).mean() >= kept]
    return max(keeping, default=0.5)


def _auroc(records: list[Record]) -> Interval:
    from hopgate.evaluation.statistics import bootstrap_interval

    both: dict[str, dict[bool, float]] = {}
    for record in records:
        both.setdefault(record["id"], {})[record["on_topic"]] = record["probability"]
    whole = [scores for scores in both.values() if len(scores) == 2]

    def statistic(right: Any, wrong: Any, axis: int = -1) -> Any:
        left, other = right[..., :, None], wrong[..., None, :]
        return ((left > other) + 0.5 * (left == other)).mean(axis=(-2, -1))

    return bootstrap_interval([[s[True] for s in whole], [s[False] for s in whole]], statistic)


def _text(found: Interval) -> str:
    if found.value is None:
        return "-"
    ends = f" [{found.low:.2f}, {found.high:.2f}]" if found.low is not None and found.high is not None else ""
    return f"{found.value:.2f}{ends}"


if __name__ == "__main__":
    main()
