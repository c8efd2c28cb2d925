"""What ``hopgate compile`` works on: all its options checked before an LM is loaded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .programs import SEARCHING, check_index
from .run_inputs import program_of, questions_of
from .terminal import make_console

if TYPE_CHECKING:
    from ..optimizers.rules import Rule

_RULES = ("--penalty", "--within", "--budget-retrievals")
_OF_JOINT = ("trials", "racing", "demo_sets", "instructions", "prompt_lm", "storage")


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be compiled; all that needs no LM is checked."""

    program: Any
    train: list[Any]
    data: Any
    valid: list[Any]
    valid_data: Any
    rule: Rule
    out: Path
    work: Path
    budget: Any
    options: dict[str, Any]

    @property
    def trees(self) -> Path:
        """The file of recorded decisions."""
        return self.work / "trees.jsonl"


def job_of(questions: str, out: str, **options: Any) -> Job:
    """Check what needs no LM, from what costs least on, and load the questions and the program.

    Args:
        questions: Name or path of the training questions.
        out: The file to write.
        **options: Those of the command.

    Raises:
        HopgateError: Something cannot be used.
    """
    from ..core import InputError, check_file, user_path
    from ..evaluation.budget import Budget

    target = user_path(out)
    check_file(target)
    work = user_path(options["work"]) if options["work"] is not None else target.with_name(f"{target.stem}.work")
    for place in (target, work / "trees.jsonl"):
        _check_writable(place)
    _check_options(options)
    rule = _rule(options)
    budget = Budget(options["max_calls"], options["max_usd"], options["max_seconds"], options["max_tokens"])
    if options["first"] is not None and options["rows"] is not None:
        raise InputError("--first and --rows both choose questions; leave one of them out")
    if options["name"] in SEARCHING:
        check_index(options["where"], options["name"])
    with make_console(stderr=True).status("Loading..."):
        _check_replaceable(target)
        chosen = (options["sample"], options["seed"], options["first"], options["rows"])
        train, data = questions_of(questions, options["split"], options["config"], *chosen)
        valid, valid_data = _valid(questions, options)
        if shared := {question.id for question in train} & {question.id for question in valid}:
            raise InputError(
                f"{len(shared):,} of the validation questions are also trained on, such as {min(shared)!r}; choose "
                "others by --rows and --valid-rows"
            )
        program = program_of(options["name"], None, options["settings"], options["where"], options["checkpoint"])
        job = Job(program.program, train, data, valid, valid_data, rule, target, work, budget, options)
        if options["optimizer"] == "joint":
            from .compile_joint import estimate

            estimate(job)
        else:
            from ..optimizers.compiled_recording import solver_with_thresholds

            solver_with_thresholds(job.program)
            if options["optimizer"] == "calibration":
                from ..optimizers.compiled_calibration import calibrated_gates

                calibrated_gates(job.program)
    return job


def _check_options(options: dict[str, Any]) -> None:
    from ..core import InputError

    given = [f"--{name.replace('_', '-')}" for name in _OF_JOINT if options[name] is not None]
    if options["calibrate"] is not None and options["optimizer"] not in ("tau", "calibration"):
        raise InputError("--calibrate is an option of --optimizer tau and calibration; leave it out")
    if options["optimizer"] != "joint":
        if given:
            raise InputError(f"{given[0]} is an option of --optimizer joint; leave it out")
    elif options["instructions"] is None and options["prompt_lm"] is not None:
        raise InputError("--prompt-lm writes instructions; say how by --instructions, or leave it out")


def _check_writable(path: Path) -> None:
    from ..core import InputError

    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path}: cannot be written, as {folder} is no folder that may be written to; name another")


def _check_replaceable(target: Path) -> None:
    """Replace a compiled program, and nothing else."""
    from ..core import HopgateError, InputError
    from ..optimizers.compiled import read_program

    if not target.exists() or target.stat().st_size == 0:
        return
    try:
        compiled = read_program(target).manifest is not None
    except HopgateError:
        compiled = False
    if not compiled:
        raise InputError(
            f"{target}: is there and no compiled program, so it is not replaced; name another file by --out"
        )


def _rule(options: dict[str, Any]) -> Rule:
    from ..core import InputError
    from ..optimizers.rules import Tradeoff, WithinBest, WithinBudget

    values = (options["penalty"], options["within"], options["budget_retrievals"])
    given = [option for option, value in zip(_RULES, values, strict=True) if value is not None]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are different rules; leave all but one out")
    if options["optimizer"] == "policy" and given not in ([], ["--penalty"]):
        raise InputError(f"a policy is trained for a penalty on searches; give it --penalty in place of {given[0]}")
    if options["optimizer"] == "calibration" and given:
        raise InputError(f"--optimizer calibration keeps the program's probabilities; leave {given[0]} out")
    penalty, within, budget = values
    try:
        if within is not None:
            return WithinBest(within)
        return Tradeoff(0.05 if penalty is None else penalty) if budget is None else WithinBudget(budget)
    except InputError as error:
        raise InputError(f"{given[0]}: {error}") from error


def _valid(questions: str, options: dict[str, Any]) -> tuple[list[Any], Any]:
    source, wanted = options["valid"], options["valid_rows"]
    if source is None and wanted is None and options["valid_split"] is None:
        return [], None
    split = options["valid_split"] or options["split"]
    return questions_of(source or questions, split, options["config"], None, options["seed"], None, wanted)
