"""AUROC of a draft's confidence for its correctness, hop by hop, along gold chains of MuSiQue.

Two kinds of draft for each sub-question: ``fork`` (question and conclusions alone, as ActiveQA drafts) and ``passages``
(as ``fork``, with the passages in view that a search for the whole question finds). A draft is right if the gold answer
and the draft contain each other as whole words.

    python benchmarks/gate.py run --data DIR --index DIR --out benchmarks/results/musique-drafts.jsonl
    python benchmarks/gate.py report benchmarks/results/musique-drafts.jsonl
    python benchmarks/gate.py fit benchmarks/results/sample-train-drafts.jsonl
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from index_common import Record, append, find, read, shown, table

if TYPE_CHECKING:
    from hopgate.evaluation import Question
    from hopgate.index import ColBERTIndex
    from hopgate.programs import Trajectory

KINDS = ("fork", "passages")


@click.group()
def main() -> None:
    """See the module's description."""


@main.command()
@click.option("--data", default="sample", show_default=True, help="Questions with a decomposition: a folder or file.")
@click.option("--split", type=click.Choice(["train", "test"]), help="Half of the sample.")
@click.option("--index", "index_path", type=click.Path(path_type=Path, exists=True), help="For the kind `passages`.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--lm", "model", default="embedded/qwen2.5-coder-1.5b", show_default=True)
@click.option("--first", default=60, show_default=True, help="Only so many questions.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, default=KINDS, show_default=True)
def run(
    data: str, split: str | None, index_path: Path | None, out: Path, model: str, first: int, kinds: tuple[str, ...]
) -> None:
    """Record drafts and confidences; a run that was stopped goes on where it was."""
    import dspy

    from hopgate.evaluation import cover_em, load_questions
    from hopgate.index import ColBERTIndex
    from hopgate.lms import CompactAdapter, lm_from_config
    from hopgate.programs.gates import echoes

    done = {(record["id"], record["hop"], record["kind"]) for record in read(out)}
    index = ColBERTIndex.open(index_path) if index_path else None
    if index is None and "passages" in kinds:
        raise click.UsageError("the kind `passages` needs --index")
    lm = lm_from_config({"model": model, "logprobs": True})
    with dspy.context(lm=lm, adapter=CompactAdapter()):
        for question in load_questions(data, split=split)[:first]:
            for number, (sub_question, gold, prefix) in enumerate(_chain(question), 1):
                for kind in kinds:
                    if (question.id, number, kind) in done:
                        continue
                    draft, confidence = _draft(kind, sub_question, prefix, number, index)
                    right = cover_em(draft, [gold]) or cover_em(gold, [draft])
                    record = {
                        "id": question.id, "hop": number, "kind": kind, "draft": draft, "right": right,
                        "echo": echoes(draft, sub_question),
                        "mean": confidence.mean, "sum": confidence.sum, "min": confidence.min,
                        "first": confidence.first, "tokens": confidence.tokens,
                    }  # fmt: skip
                    append(out, record)


def _chain(question: Question) -> Iterator[tuple[str, str, Trajectory]]:
    """(sub-question, gold answer, gold trajectory before it) for each hop."""
    from hopgate.programs import Hop, Trajectory

    answers: list[str] = []
    hops: tuple[Hop, ...] = ()
    for step in question.decomposition:
        sub_question = step.question
        for number, answer in reversed(list(enumerate(answers, 1))):
            sub_question = sub_question.replace(f"#{number}", answer)
        yield sub_question, step.answer, Trajectory(question.question, hops)
        hops = (*hops, Hop(sub_question, answer=step.answer))
        answers.append(step.answer)


def _draft(
    kind: str, sub_question: str, prefix: Trajectory, number: int, index: ColBERTIndex | None
) -> tuple[str, Any]:
    import dspy

    from hopgate.lms import answer_confidence
    from hopgate.programs.transcript import found, line, transcript, worked_example
    from hopgate.programs.worked_examples import DEFAULT_EXAMPLES
    from hopgate.signatures import DraftConclusion

    demos = [{"question": "", "transcript": worked_example(example, words=70)} for example in DEFAULT_EXAMPLES]
    seen = found(index.search(prefix.question, 3), 70) if index is not None and kind == "passages" else []
    lines = [*seen, transcript(prefix, words=None), line(f"Task {number}:", sub_question)]
    prediction = dspy.Predict(DraftConclusion)(
        question=prefix.question, trajectory="\n".join(filter(None, lines)), demos=demos
    )
    return str(prediction.draft), answer_confidence(prediction, "draft")


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
def report(path: Path) -> None:
    """Print a Markdown table of AUROCs with 95 % bootstrap intervals over questions."""
    records = read(path)
    groups = {"1": lambda hop: hop == 1, "2 or later": lambda hop: hop > 1, "all": lambda hop: True}
    rows = []
    for kind in KINDS:
        for name, wanted in groups.items():
            own = [record for record in find(records, kind=kind) if wanted(record["hop"])]
            kept = [record for record in own if record["mean"] is not None and record["mean"] >= -0.3]
            cells = [_auroc(own, measure) for measure in ("mean", "min", "sum", "first")]
            share = f"{len(kept) / max(1, len(own)):.2f}, {_right(kept)}"
            rows.append([kind, name, len(own), _right(own), *cells, share])
    table(["draft", "hops", "n", "right", "AUROC mean", "min", "sum", "first", "above -.3: share, right"], rows)


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
def fit(path: Path) -> None:
    """Fit tau on the drafts of kind `fork`."""
    from hopgate.optimizers import Tradeoff, drafts_as_trees, fit_tau

    rows = find(read(path), kind="fork")
    # The gate never keeps an echo, so an echo is no evidence on where tau should be.
    means = [None if r["echo"] else r["mean"] for r in rows]
    # Half a search's worth: a right draft that is kept counts as much as a wrong one.
    tau = fit_tau(drafts_as_trees(means, [r["right"] for r in rows]), Tradeoff(0.5), folds=0).thresholds["hop"]
    kept = [row for row, mean in zip(rows, means, strict=True) if mean is not None and mean >= tau]
    right = f", and {_right(kept)} of these are right" if kept else ""
    print(f"tau {tau:.3f}: of {len(rows)} drafts {len(kept) / len(rows):.2f} stand at or above it{right}")


def _right(rows: list[Record]) -> str:
    return f"{np.mean([record['right'] for record in rows]):.2f}" if rows else "-"


def _auroc(rows: list[Record], measure: str) -> str:
    """AUROC with its interval. Hops of one question are not independent, so whole questions are drawn."""
    from scipy.stats import bootstrap

    right = np.array([record["right"] for record in rows], dtype=bool)
    if right.all() or not right.any():
        return "-"
    score = np.array([-np.inf if record[measure] is None else record[measure] for record in rows])
    numbers = {identity: number for number, identity in enumerate(dict.fromkeys(record["id"] for record in rows))}
    question = np.array([numbers[record["id"]] for record in rows])
    higher = score[right][:, None] > score[~right]
    pairs = higher + 0.5 * (score[right][:, None] == score[~right])

    def statistic(chosen: Any, axis: int = -1) -> Any:
        # A question that was drawn twice counts twice: its hops get that weight.
        counts = (np.asarray(chosen)[..., None] == np.arange(len(numbers))).sum(-2)
        ours, others = counts[..., question[right]], counts[..., question[~right]]
        won = np.einsum("...i,ij,...j->...", ours, pairs, others)
        with np.errstate(invalid="ignore"):
            return won / (ours.sum(-1) * others.sum(-1))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a resample in which all are right, or none, has no AUROC and is left out
        drawn = bootstrap(
            (np.arange(len(numbers)),), statistic, n_resamples=5000, batch=250, method="percentile",
            rng=np.random.default_rng(0),
        )  # fmt: skip
    low, high = np.nanpercentile(drawn.bootstrap_distribution, [2.5, 97.5])
    return shown((float(statistic(np.arange(len(numbers)))), float(low), float(high)))


if __name__ == "__main__":
    main()
