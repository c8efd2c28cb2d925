"""ReAct: reasoning and acting (Yao et al. 2023), on ``dspy.ReAct`` with search as its only tool.

::

    question ──► thought, tool ──"search"──► observation: passages ──┐
                  ▲     │ "finish"                                   │
                  │     └──► extract: reasoning, answer              │
                  └───────────────────────────────────────────────────┘

``dspy.ReAct`` makes both predictors, ``react`` and ``extract``, and the fields of the text between them. Its loop is
carried out here request by request, so that searches are counted like those of other programs, a trajectory can be
resumed, and ``acall`` awaits. Where the tool's arguments name no query the first text among them is taken; a tool that
cannot be read ends the loop, as it does in ``dspy.ReAct``, and so does a query that was searched for before.

Newer than ``dspy.ReAct`` is ``dspy.ReActV2``, which is experimental, and needs tool calls and histories that an LM
without native function calling writes as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import dspy
from pydantic import Field

from ..core import InputError
from ..core.texts import encodable
from ..signatures import AnswerBySearching
from .chains import distinct, finishes, stated_answer, words_of
from .composing import composed, conclusions
from .decomposers import same_question
from .requests import Ask, Find, Found, Reached, Steps, Told
from .settings import ExampleSettings, validated
from .solver import Solver, lm_of
from .trajectory import Cost, Hop, StopReason, Trajectory
from .transcript import failed_plan, hint, line, shorten
from .worked_examples import DEFAULT_EXAMPLES

_DONE = "Completed."  # What the tool `finish` of dspy.ReAct returns.


class ReActSettings(ExampleSettings):
    """Settings of :class:`ReAct`.

    Attributes:
        max_hops: Limit on searches; 7 is the paper's for HotpotQA (section 3.2).
        context_words: Words of passages that a trajectory may hold before no further search follows.
    """

    max_hops: int = Field(default=7, ge=1, le=50)
    context_words: int = Field(default=1500, ge=50)


def _search(query: str) -> list[str]:
    """Searches an encyclopedia and returns the passages that fit the query best."""
    raise InputError(f"`search` is carried out by the program, not by the tool itself (query {query[:80]!r})")


def _react_example(example: Trajectory, thoughts: Sequence[str]) -> Trajectory:
    """A worked example with what ReAct thinks before each search, and at the end."""
    searches = [hop for hop in example.hops if hop.source == "search"]
    *before, last = thoughts
    hops = [
        replace(hop, sub_question=thought, query=hop.sub_question, answer="")
        for hop, thought in zip(searches, before, strict=True)
    ]
    return replace(example, hops=(*hops, Hop(last, answer=last)))


REACT_EXAMPLES: tuple[Trajectory, ...] = (
    _react_example(
        DEFAULT_EXAMPLES[0],
        (
            "I need to find the architect of the Halden Lighthouse.",
            "The architect was Ivar Brenne. I need to find in which year he was born.",
            "Ivar Brenne was born in 1868. The answer is 1868.",
        ),
    ),
    _react_example(
        DEFAULT_EXAMPLES[1],
        ("I know that Johannes Brahms was from Germany and Giuseppe Verdi from Italy. The answer is no.",),
    ),
    _react_example(
        DEFAULT_EXAMPLES[2],
        (
            "I need to find the singer of the ballad Quiet Harbour.",
            "The singer is Lena Ostrow. I need to find of which town she was treasurer.",
            "She was treasurer of Torvik. I need to find on which river it lies.",
            "Torvik lies on the river Aune. The answer is the Aune.",
        ),
    ),
)
"""The worked examples with the thoughts of ReAct."""


class ReAct(Solver):
    """Think, search, observe, until the LM calls ``finish``; then extract the answer.

    A hop is one turn: its ``sub_question`` is the thought, then come query and passages. The turn that finishes has
    neither, and the thought as its ``answer``.

    Args:
        retriever: An index or anything with ``search(query, k)``.
        **settings: See :class:`ReActSettings`.

    Raises:
        InputError: A setting is unknown or out of range.
    """

    def __init__(self, retriever: Any, **settings: Any) -> None:
        super().__init__(retriever, validated(ReActSettings, settings))
        agent = dspy.ReAct(AnswerBySearching, tools=[dspy.Tool(_search, name="search")])
        self.react: Any = agent.react
        self.extract: Any = agent.extract
        # Past turns have these labels, and the worked examples show what the instructions say (see CompactAdapter).
        labels = {"next_thought": "Thought #:", "next_tool_name": "Tool Name #:", "next_tool_args": "Tool Args #:"}
        for name, label in labels.items():
            _relabel(self.react, name, prefix=label)
        _relabel(self.react, "next_thought", implied_instruction=self.react.signature.instructions)
        _relabel(self.extract.predict, "reasoning", implied_instruction=self.extract.predict.signature.instructions)

    def _steps(self, question: str, trajectory: Trajectory) -> Steps:
        if trajectory.answer is not None:
            return trajectory
        settings: ReActSettings = self.settings.values
        if trajectory.open is not None:
            trajectory = trajectory.with_hop(trajectory.open)
            yield Reached(trajectory)
        while trajectory.stop_reason is None:
            if reason := _reason_to_stop(trajectory, settings):
                trajectory = replace(trajectory, stop_reason=reason)
            else:
                told: Told = yield self._turn(trajectory, settings)
                hop, reason = _move(told, trajectory)
                if reason is not None:
                    cost = trajectory.other_cost + told.cost
                    trajectory = replace(trajectory, stop_reason=reason, other_cost=cost)
                elif hop.query is None:
                    trajectory = trajectory.with_hop(hop)
                else:
                    searched: Found = yield Find(hop.query, settings.k)
                    cost = hop.cost + searched.cost + Cost(passages_read=len(searched.passages))
                    trajectory = trajectory.with_hop(replace(hop, passages=searched.passages, cost=cost))
            yield Reached(trajectory)
        return (yield from self._extract(trajectory, settings))

    def _turn(self, trajectory: Trajectory, settings: ReActSettings) -> Ask:
        lines = [*failed_plan(trajectory), _text(_fields(trajectory.hops, settings.passage_words))]
        inputs = {"question": trajectory.question, "trajectory": "\n".join(filter(None, lines))}
        also, config = ("next_tool_name", "next_tool_args"), self._stops("\nObservation", "\nThought")
        return Ask("react", "next_thought", inputs, self._demos("react", settings), also=also, config=config)

    def _extract(self, trajectory: Trajectory, settings: ReActSettings) -> Steps:
        lines = [_text(_fields(trajectory.hops, settings.passage_words)), *hint(trajectory)]
        inputs = {"question": trajectory.question, "trajectory": "\n".join(filter(None, lines))}
        config = self._stops("\nQuestion", "\nThought", "\nObservation")
        demos = self._demos("extract", settings)
        told: Told = yield Ask("extract", "answer", inputs, demos, also=("reasoning",), config=config)
        # Small models state the answer in the reasoning and stop there, or write a sentence where the answer goes.
        reasoning = told.others.get("reasoning", "")
        others = [(stated_answer(text), sure) for text, sure in conclusions(trajectory)]
        others = [(stated_answer(reasoning), None), *others] if finishes(reasoning) else others
        if told.text and told.text.endswith("."):
            told = replace(told, text=stated_answer(told.text))
        return composed(trajectory, told, others=others, examples=settings.worked_examples(REACT_EXAMPLES))

    def _stops(self, *stops: str) -> dict[str, Any]:
        """Where an LM that continues the text is cut off before it invents the next observation itself."""
        engine = getattr(lm_of(self.react), "engine", None)
        return {"stop": list(stops)} if getattr(engine, "continues_assistant", False) else {}

    def _demos(self, step: str, settings: ReActSettings) -> tuple[dict[str, Any], ...]:
        examples = settings.worked_examples(REACT_EXAMPLES)
        return tuple(demo for example in examples for demo in _demos(example, step, settings.passage_words))


def _relabel(predictor: Any, name: str, **changes: Any) -> None:
    predictor.signature = predictor.signature.with_updated_fields(name, **changes)


def _move(told: Told, trajectory: Trajectory) -> tuple[Hop, StopReason | None]:
    """The turn that the LM decided on, still without passages; or why it decided on none."""
    thought = told.text or ""
    hop = Hop(thought, cost=told.cost)
    tool = told.others.get("next_tool_name")
    if tool is None:
        return hop, "empty"
    if tool == "finish":
        return replace(hop, answer=thought), None
    query = _query(getattr(told.prediction, "next_tool_args", None)) or thought
    if not query.strip():
        return hop, "empty"
    searched = any(hop.query is not None and same_question(query, hop.query) for hop in trajectory.hops)
    return replace(hop, source="search", query=query), "repeated" if searched else None


def _query(arguments: Any) -> str:
    values = arguments if isinstance(arguments, Mapping) else {}
    texts = (value for value in (values.get("query"), *values.values()) if isinstance(value, str) and value.strip())
    return encodable(next(texts, ""))


def _fields(hops: Sequence[Hop], words: int) -> dict[str, Any]:
    """The turns as the fields that ``dspy.ReAct`` keeps them in, counted from 1."""
    fields: dict[str, Any] = {}
    for number, hop in enumerate(hops, 1):
        searched = hop.query is not None
        fields[f"thought_{number}"] = hop.sub_question
        fields[f"tool_name_{number}"] = "search" if searched else "finish"
        fields[f"tool_args_{number}"] = {"query": hop.query} if searched else {}
        shown = [shorten(passage.long_text, words) for passage in hop.passages] or ["nothing found"]
        fields[f"observation_{number}"] = shown if searched else _DONE
    return fields


def _text(fields: dict[str, Any]) -> str:
    """As ``dspy.ReAct`` writes them: in the form of the adapter in use."""
    if not fields:
        return ""
    adapter = dspy.settings.adapter or dspy.ChatAdapter()
    # Not as text, "a, b -> x": that is parsed as Python, which several threads cannot do at once before Python 3.11.8.
    described: Any = {name: (str, dspy.InputField()) for name in fields}
    signature = dspy.make_signature({**described, "x": (str, dspy.OutputField())}, "The turns so far.")
    return adapter.format_user_message_content(signature, fields)


def _demos(example: Trajectory, step: str, words: int) -> list[dict[str, Any]]:
    """A worked example as demos of one step, as ``worked_examples.step_demos`` makes them."""
    hops = example.hops
    if not hops or hops[-1].query is not None:
        last = f"The answer is {example.answer}."
        hops = (*hops, Hop(last, answer=last))  # Taken from a program that does not say when it has finished.
    whole, reasoning = _text(_fields(hops, words)), hops[-1].sub_question
    ends = [f"Reasoning: {reasoning}", line("Answer:", example.answer or "")]
    shared = {"question": example.question}
    shared["transcript"] = "\n".join([line("Question:", example.question), whole, *ends])
    if step == "extract":
        return [{**shared, "trajectory": whole, "reasoning": reasoning, "answer": example.answer}]
    demos = []
    for number in range(1, len(hops) + 1):
        fields = _fields(hops[:number], words)
        turn = {f"next_{name}": fields[f"{name}_{number}"] for name in ("thought", "tool_name", "tool_args")}
        demos.append({**shared, "trajectory": _text(_fields(hops[: number - 1], words)), **turn})
    return demos


def _reason_to_stop(trajectory: Trajectory, settings: ReActSettings) -> StopReason | None:
    if trajectory.hops and trajectory.hops[-1].query is None:
        return "finished"
    if len(trajectory.hops) >= settings.max_hops:
        return "max_hops"
    found = distinct(passage for hop in trajectory.hops for passage in hop.passages)
    return "context" if words_of(found, settings.passage_words) > settings.context_words else None
