"""All that is fitted in a program, as one DSPy parameter."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Generic, Literal, TypeVar

from dspy.predict.parameter import Parameter
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from ..core import InputError, StateError
from .trajectory import Trajectory

STATE_VERSION = 1


class SettingsModel(BaseModel):
    """Base of all settings: no unknown names, no change in place, and no truth value where a number is wanted."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value_as_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        # Python's True is 1, which nobody means: a threshold or a count of `true` is a setting mistaken for another.
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation in (int, float):
            raise ValueError("a number is wanted, not true or false")
        return value


class ProgramSettings(SettingsModel):
    """Settings that all programs have.

    Attributes:
        k: Passages that one search puts before the LM.
        passage_words: Words shown of each passage.
    """

    k: int = Field(default=3, ge=1, le=100)
    passage_words: int = Field(default=70, ge=5)


class ExampleSettings(ProgramSettings):
    """Settings of programs that show worked examples.

    Attributes:
        examples: Worked examples, as finished trajectories of the program or their JSON; those of hopgate if not given,
            none if the list is empty.
    """

    examples: list[dict[str, Any]] | None = None

    @field_validator("examples", mode="before")
    @classmethod
    def _finished_trajectories(cls, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise ValueError("a list of finished trajectories or of their JSON objects is expected")
        examples = [item if isinstance(item, Trajectory) else _trajectory(item) for item in value]
        for example in examples:
            if not example.answer:
                raise ValueError(f"a worked example needs an answer: {example.question[:80]!r}")
        return [example.to_dict() for example in examples]

    def worked_examples(self, default: tuple[Trajectory, ...]) -> tuple[Trajectory, ...]:
        """The worked examples to show; ``default`` where none were given."""
        return default if self.examples is None else tuple(map(Trajectory.from_dict, self.examples))


class ActiveSettings(ExampleSettings):
    """Settings of :class:`hopgate.programs.ActiveQA`.

    Attributes:
        gate: ``threshold`` searches where the draft's confidence is below ``tau``; ``always`` and ``never`` do not ask
            for a confidence, and ``always`` asks for no draft; ``random`` searches at the ``search_rate``.
        tau: Threshold on the mean log-probability of the draft's tokens, in nats.
        search_rate: Share of the drafts that ``random`` does not keep.
        seed: Of ``random``.
        decomposer: ``iterative`` asks for the next sub-question only; ``plan`` for all at once.
        start: Whether the first sub-question is asked for, or is the ``question`` itself.
        query: Whether a search query carries the ``chain`` of answers so far or is the ``sub_question`` alone.
        depth: Passages that a search fetches before they are reranked.
        rerank: By what: the ``sub_question`` alone, both rankings ``fused`` by reciprocal rank, or ``none``. An index
            is not asked to where the query is the sub-question.
        reread: Whether a hop first tries the passages that earlier hops have found.
        tau_read: Threshold for an answer from those, on the mean log-probability of its tokens, in nats.
        fused_hop: Whether one LM call gives the next sub-question and its draft, which spares a call a hop; it sees the
            conclusions alone, as drafts do. Plans and gates that need no draft are not concerned.
        calculator: Whether a sub-question that compares, counts or asks for a difference of known numbers or dates is
            first tried as an expression.
        check_each_hop: Whether an answer is composed after each hop and, if it is sure enough, is the final one.
        tau_final: Threshold for that, on the mean log-probability of the answer's tokens, in nats.
        max_hops: Limit on hops.
        final_passages: Passages that the last step reads once more with the question.
        context_words: Words of passages that a trajectory may hold before no further hop follows.
        abstain: Whether an answer that neither memory nor passages support is kept back: the prediction then has
            ``answered = False``, no answer, and the ``best_guess`` apart.
        tau_abstain: Threshold for that, on the mean log-probability of the answer's tokens, in nats.
        without_confidence: What to do where the backend gives no usable log-probabilities: ``raise``, or ``search``.
    """

    gate: Literal["threshold", "always", "never", "random"] = "threshold"
    tau: float = Field(default=-0.3, le=0)
    search_rate: float = Field(default=0.5, ge=0, le=1)
    seed: int = 0
    decomposer: Literal["iterative", "plan"] = "iterative"
    start: Literal["sub_question", "question"] = "sub_question"
    query: Literal["chain", "sub_question"] = "chain"
    depth: int = Field(default=10, ge=1, le=1000)
    rerank: Literal["sub_question", "fused", "none"] = "sub_question"
    reread: bool = False
    tau_read: float = Field(default=-0.05, le=0)
    fused_hop: bool = False
    calculator: bool = False
    check_each_hop: bool = False
    tau_final: float = Field(default=-0.05, le=0)
    max_hops: int = Field(default=4, ge=1, le=20)
    final_passages: int = Field(default=4, ge=0, le=100)
    context_words: int = Field(default=1500, ge=50)
    abstain: bool = False
    tau_abstain: float = Field(default=-0.7, le=0)
    without_confidence: Literal["raise", "search"] = "raise"


class EscalationSettings(ActiveSettings):
    """Settings of :class:`hopgate.programs.Escalation`.

    Attributes:
        memory: Whether the whole question is first answered from memory.
        tau_memory: Threshold for that answer, on the mean log-probability of its tokens, in nats.
        grounded: Whether the whole question is then searched for and answered from its passages, as standard RAG does.
        tau_grounded: Threshold for that answer, on the mean log-probability of its tokens, in nats.
        escalate: Whether that ``threshold`` decides on going on to sub-questions; or the program does so ``always``
            (without reading the question's passages), ``never``, or at ``random``.
        escalation_rate: Share of the questions that ``random`` goes on with.
        prefer: Which answer to give after sub-questions: the ``last``, or the more ``confident`` one of the last and
            the one read from the question's own passages.
    """

    memory: bool = True
    tau_memory: float = Field(default=-0.05, le=0)
    grounded: bool = True
    tau_grounded: float = Field(default=-0.2, le=0)
    escalate: Literal["threshold", "always", "never", "random"] = "threshold"
    escalation_rate: float = Field(default=0.5, ge=0, le=1)
    prefer: Literal["last", "confident"] = "confident"


def _trajectory(record: Any) -> Trajectory:
    try:
        return Trajectory.from_dict(record)
    except StateError as error:
        raise ValueError(str(error)) from error


S = TypeVar("S", bound=BaseModel)


class Settings(Parameter, Generic[S]):
    """A program's settings as a DSPy parameter, so that they are saved, loaded and copied with its predictors.

    ``reset()`` keeps what was fitted: teleprompters reset a program before they bootstrap it, and it must go on
    searching as it was told to.

    Args:
        values: The settings.

    Attributes:
        own_gates: Steps of the program that gates of its own with a state decide at. They are saved along, since of a
            program inside a module of another project this is all that can tell that a state is for other gates.
    """

    def __init__(self, values: S) -> None:
        self.values = values
        self.own_gates: tuple[str, ...] = ()

    def update(self, **changes: Any) -> None:
        """Change some settings.

        Raises:
            InputError: A name is unknown or a value is out of range.
        """
        self.values = validated(type(self.values), {**self.values.model_dump(), **changes})

    def reset(self) -> None:
        """Keep everything: settings are fitted, not bootstrapped."""

    def dump_state(self, json_mode: bool = True) -> dict[str, Any]:
        """The settings as a JSON object with a version."""
        gates = {"gates": list(self.own_gates)} if self.own_gates else {}
        return {"version": STATE_VERSION, **self.values.model_dump(mode="json"), **gates}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take settings from a saved state; those that an older state lacks keep their defaults.

        Raises:
            StateError: The state is of a newer version, does not fit, or is for gates that the program does not have.
        """
        data = dict(state)
        version = data.pop("version", None)
        if type(version) is not int or not 1 <= version <= STATE_VERSION:
            raise StateError(f"the settings have version {version!r}; this hopgate reads up to {STATE_VERSION}")
        gates = data.pop("gates", [])
        if not isinstance(gates, list) or not all(isinstance(step, str) for step in gates):
            raise StateError(f"saved settings do not fit: `gates` is no list of steps (got {gates!r:.60})")
        if lost := [step for step in gates if step not in self.own_gates]:
            raise StateError(without_gates(lost))
        try:
            self.values = validated(type(self.values), data)
        except InputError as error:
            raise StateError(f"saved settings do not fit: {error}") from error

    def __repr__(self) -> str:
        return f"Settings({self.values!r})"


def without_gates(names: list[str]) -> str:
    """What to say of a state for gates that a program does not have."""
    return (
        f"the state is for gates of its own ({', '.join(names)}) that the program does not have, and it would decide "
        "otherwise without them; give it an empty gate of the same kind at each of these steps before loading, or save "
        "the program by `save_program` and load it by `load_program`"
    )


def validated(model: type[S], values: dict[str, Any], *, others: Iterable[str] = ()) -> S:
    """The settings that a dictionary describes.

    Args:
        model: Their schema.
        values: Settings by their names.
        others: Names of settings that are taken elsewhere, which the message about an unknown one tells too.

    Raises:
        InputError: A name is unknown or a value is out of range; the message names the setting.
    """
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"])) or model.__name__
        if first["type"] == "extra_forbidden":
            raise InputError(_unknown(name, list(dict.fromkeys([*model.model_fields, *others])))) from error
        wanted = first["msg"].removeprefix("Value error, ")
        wanted = f" must be {wanted[16:]}" if wanted.startswith("Input should be ") else f": {wanted}"
        raise InputError(f"setting `{name}`{wanted} (got {repr(first.get('input'))[:60]})") from error


def _unknown(name: str, known: list[str]) -> str:
    likely = get_close_matches(name.lower(), known, n=1)
    suggestion = f"; did you mean `{likely[0]}`? There are" if likely else "; there are"
    return f"there is no setting `{name:.60}`{suggestion} {', '.join(known)}"
