"""The ablations of ActiveQA: what each of its parts is worth, as runs that differ in one thing.

The random gate searches at the rate that was measured for the threshold gate, so it must come after it. The oracle gate
keeps exactly the right drafts; it knows the gold answers and bounds what any gate could do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..core import InputError, check_file, user_path
from .gold import solvers_of
from .metrics import exact_match
from .question_digest import questions_digest
from .questions import Question
from .records import Run, read_run
from .run_differences import data_differences
from .run_schema import DataHeader
from .runner import OnProgress, evaluate
from .tables import Table


@dataclass(frozen=True, slots=True)
class Ablation:
    """One run of the table.

    Attributes:
        name: Its name, and that of its file.
        program: The program, by its name in ``hopgate.programs.registry``.
        what: What it changes.
        calls: LM calls that a question of two hops typically takes.
        settings: Settings that it changes.
    """

    name: str
    program: str
    what: str
    calls: int
    settings: Mapping[str, Any] = field(default_factory=dict)


RANDOM, ORACLE, MEASURED = "random", "oracle", "active"

ABLATIONS: dict[str, Ablation] = {
    item.name: item
    for item in (
        Ablation("rag", "rag", "one search with the question, one reading", 1),
        Ablation("never", "never", "no search: every draft is kept", 6),
        Ablation("always", "always", "a search at every hop, no draft", 6),
        Ablation(MEASURED, "active", "a search where the draft's confidence is below tau", 8),
        Ablation(RANDOM, "active", "a search at random, at the rate measured for active", 8, {"gate": "random"}),
        Ablation(ORACLE, "active", "a search where the draft is wrong by the gold answers (bounds every gate)", 8),
        Ablation("static", "static", "all sub-questions at once", 6),
        Ablation("no-chain", "active", "queries without the answers so far", 8, {"query": "sub_question"}),
        Ablation("no-rerank", "active", "passages in the order of the search", 8, {"rerank": "none"}),
        Ablation("fused", "fused", "sub-question and draft in one call", 6),
        Ablation("escalation", "escalation", "memory, else as rag, else sub-questions, by confidence", 6),
    )
}
"""The runs of the table, in order."""


class OracleGated:
    """ActiveQA with the oracle gate, called like the program.

    Its run is known by its settings, in which the gate is ``oracle``: a program that knows the gold answers has no
    state that could be recorded.

    Args:
        program: A new ActiveQA.
        questions: The questions, with their answers and those of their steps.
    """

    def __init__(self, program: Any, questions: Iterable[Question]) -> None:
        from ..programs import OracleGate

        asked = list(questions)
        program.gate = OracleGate(
            exact_match,
            {question.question: question.answers for question in asked},
            {question.question: [step.answer for step in question.decomposition] for question in asked},
        )
        self.program = program
        self.retriever = program.retriever
        settings = {**program.settings.values.model_dump(mode="json"), "gate": ORACLE}
        self.settings = SimpleNamespace(values=SimpleNamespace(model_dump=lambda mode="python": settings))

    def __call__(self, question: str) -> Any:
        """Answer a question."""
        return self.program(question=question)


def chosen(names: Sequence[str]) -> list[Ablation]:
    """Ablations by name, in the table's order; all if none is named, and any other registered program as it is.

    Raises:
        InputError: A name is unknown.
    """
    from ..programs.registry import PROGRAMS

    unknown = [name for name in names if name not in ABLATIONS and name not in PROGRAMS]
    if unknown:
        known = ", ".join(dict.fromkeys([*ABLATIONS, *PROGRAMS]))
        raise InputError(f"no ablation or program is named {unknown[0]!r}; there are {known}")
    others = (name for name in dict.fromkeys(names) if name not in ABLATIONS)
    return [
        *(item for name, item in ABLATIONS.items() if not names or name in names),
        *(Ablation(name, name, PROGRAMS[name].summary, 6) for name in others),
    ]


def make_ablation(
    ablation: Ablation,
    index: Any,
    questions: Iterable[Question],
    *,
    settings: Mapping[str, Any],
    rate: float | None = None,
    seed: int = 0,
) -> Any:
    """The program of an ablation.

    Args:
        ablation: Which.
        index: What it searches.
        questions: The questions, for the oracle gate.
        settings: Settings of all programs that have them; those that the ablation changes go before.
        rate: The random gate's.
        seed: Likewise.

    Raises:
        InputError: A setting has no possible value, or there is no rate.
    """
    from ..programs.registry import make_program

    program = make_program(ablation.program, index)
    known = known_settings(program)
    changes = {**{name: value for name, value in settings.items() if name in known}, **ablation.settings}
    if ablation.program != "active":
        # What makes the program what it is.
        fixed = make_program(ablation.program).settings.values
        base = type(fixed)()
        own = {name for name in type(fixed).model_fields if getattr(fixed, name) != getattr(base, name)}
        changes = {name: value for name, value in changes.items() if name not in own}
    if ablation.name == RANDOM:
        if rate is None:
            raise InputError(f"the random gate needs the rate of {MEASURED}: run that as well, into the same folder")
        changes |= {"search_rate": rate, "seed": seed}
    program.settings.update(**changes)
    return OracleGated(program, questions) if ablation.name == ORACLE else program


def known_settings(program: Any) -> set[str]:
    """Names of the settings of a program, and of the programs in it."""
    return {name for solver in solvers_of(program) for name in type(solver.settings.values).model_fields}


def check_settings(ablations: Iterable[Ablation], settings: Mapping[str, Any]) -> None:
    """Refuse settings that none of the programs has or that make the rows what they are, and values that are refused.

    Raises:
        InputError: The message names the setting.
    """
    from ..programs.registry import make_program

    wanted = list(ablations)
    own = {"gate", "search_rate", "seed", *(name for item in ABLATIONS.values() for name in item.settings)}
    taken = sorted(set(settings) & own)
    if taken:
        raise InputError(
            f"setting `{taken[0]}`: is what the runs of the table differ in, and a row would not be what it is called; "
            "choose runs with --programs, or use `hopgate evaluate`"
        )
    known = {name for item in wanted for name in known_settings(make_program(item.program))}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise InputError(f"setting `{unknown[0]}`: none of {', '.join(item.name for item in wanted)} has it")
    for item in wanted:
        make_ablation(item, None, (), settings=settings, rate=0.5)


def search_rate(run: Run) -> float:
    """The share of the drafts of a run that were not kept, to four digits.

    Raises:
        InputError: The run has no draft.
    """
    kept: list[bool] = []
    for record in run.answered:
        if record.trajectory is None:
            continue
        made = [decision.kept for decision in record.trajectory.decisions if decision.step == "hop"]
        # Older run files tell no decisions, but what came of them.
        kept += made or [hop.source == "memory" for hop in record.trajectory.hops if hop.draft is not None]
    if not kept:
        raise InputError(f"run {run.header.name!r} has no drafts, so there is no rate for the random gate")
    return round(1 - sum(kept) / len(kept), 4)


def run_file(folder: str | Path, ablation: Ablation) -> Path:
    """The run file of an ablation."""
    return user_path(folder) / f"{ablation.name}.jsonl"


def check_tables(folder: str | Path) -> tuple[Path, Path]:
    """The files of the table, in Markdown and JSON, in the folder of the run files.

    Args:
        folder: The folder; it may be missing.

    Raises:
        InputError: It is no folder, or one of the files is there and is not a table of ours.
    """
    target = user_path(folder)
    if target.exists() and not target.is_dir():
        raise InputError(f"{target}: is no folder; name one for the run files and the table")
    begins = {"ablation.md": "**Scores**\n\n| run | EM |", "ablation.json": '{\n "schema": 1,\n "kind": "comparison"'}
    for name, beginning in begins.items():
        path = target / name
        check_file(path)
        if not path.exists():
            continue
        with path.open("rb") as file:
            start = file.read(len(beginning))
        if start and start != beginning.encode():
            raise InputError(f"{path}: exists and is not a table that hopgate wrote; remove it, or name another folder")
    return target / "ablation.md", target / "ablation.json"


def run_ablations(
    ablations: Sequence[Ablation],
    index: Any,
    questions: Sequence[Question],
    folder: str | Path,
    *,
    data: DataHeader,
    settings: Mapping[str, Any],
    seed: int = 0,
    on_run: Callable[[Ablation], OnProgress | None] | None = None,
    **options: Any,
) -> list[Run]:
    """Run each ablation into its file, going on where it was stopped; a run that stops early is the last.

    Args:
        ablations: The ablations, in the table's order.
        index: What they search.
        questions: The questions.
        folder: Where the run files are.
        data: Which questions they are.
        settings: Settings of all programs that have them.
        seed: Of the runs, and of the random gate.
        on_run: Called before each run; returns what reports its progress.
        **options: As for :func:`~hopgate.evaluation.runner.evaluate`.

    Raises:
        InputError: The random gate's rate cannot be told, or as for ``evaluate``.
    """
    runs: list[Run] = []
    data = replace(data, questions_sha256=questions_digest(questions))
    for item in ablations:
        rate = _measured(folder, data) if item.name == RANDOM else None
        program = make_ablation(item, index, questions, settings=settings, rate=rate, seed=seed)
        report = None if on_run is None else on_run(item)
        out = run_file(folder, item)
        runs.append(evaluate(program, questions, out, data=data, seed=seed, on_progress=report, **options))
        if runs[-1].stopped is not None:
            break
    return runs


def _measured(folder: str | Path, data: DataHeader) -> float | None:
    path = run_file(folder, ABLATIONS[MEASURED])
    if not path.exists():
        return None
    run = read_run(path)
    if data_differences(run.header.data, data) or run.missing:
        raise InputError(f"{path}: does not answer all of these questions, so the random gate's rate cannot be told")
    return search_rate(run)


def plan_table(ablations: Sequence[Ablation], folder: str | Path, count: int) -> Table:
    """What would be run, with the LM calls that it is estimated to take.

    Where a file has records, their mean is the estimate; else it is what a question of two hops typically takes.

    Args:
        ablations: The ablations.
        folder: Where the run files are, or will be.
        count: Number of questions.
    """
    rows, total = [], 0.0
    for item in ablations:
        path = run_file(folder, item)
        records = read_run(path).records if path.exists() else ()
        each = sum(record.cost.lm_calls for record in records) / len(records) if records else float(item.calls)
        left = max(0, count - len(records))
        total += left * each
        measured = "measured" if records else "typical"
        rows.append(
            (item.name, item.what, str(len(records)), str(left), f"{each:.1f} ({measured})", f"{left * each:,.0f}")
        )
    return Table(
        "What would be run",
        ("run", "what it is", "done", "left", "LM calls a question", "LM calls left"),
        tuple(rows),
        (f"{len(rows)} runs of {count:,} questions, about {total:,.0f} LM calls.",),
    )
