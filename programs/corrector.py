"""The corrections of Dr3: attempts at a better answer, each judged, and the account of them.

See :mod:`hopgate.programs.dr3` for the method.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import dspy
from pydantic import Field

from ..core import InputError, Passage
from .requests import Find, Found, Ran, Run
from .settings import ProgramSettings
from .trajectory import Cost, Hop, Trajectory

Stage = Literal["solve", "recompose", "resolve", "redecompose"]
"""What an attempt did: the solver's own run, or one of the corrections."""

# The better of two answers has the better verdict, then the higher probability.
_RANK = {"off_topic": 0, "undecided": 1, "on_topic": 2}

_Ends = Generator[Any, Any, bool]
"""Requests of the solver that end in whether no further attempt is to be made."""


class Dr3Settings(ProgramSettings):
    """Settings of :class:`hopgate.programs.Dr3`; ``k`` and ``passage_words`` are the solver's.

    Attributes:
        recompose: Whether to compose again.
        resolve: Whether to read lower-ranked passages.
        redecompose: Whether to begin anew with another plan.
        resolve_depth: The lowest rank that Re-Solve reads.
        max_lm_calls: LM calls of correcting, judgements included, after which no further attempt begins.
        max_retrievals: Searches of correcting after which no further attempt that searches begins.
        undecided: Whether an answer on which the discriminator cannot tell is kept, or corrected.
    """

    recompose: bool = True
    resolve: bool = True
    redecompose: bool = True
    resolve_depth: int = Field(default=10, ge=1, le=1000)
    max_lm_calls: int = Field(default=60, ge=0)
    max_retrievals: int = Field(default=20, ge=0)
    undecided: Literal["keep", "correct"] = "keep"


@dataclass(slots=True, eq=False)
class Attempt:
    """One answer, how it came about and what was thought of it.

    Attributes:
        stage: What was done.
        hop: Position of the hop whose passages were replaced, from 0.
        page: Which page of its ranking was read, from 1.
        resumed: How many hops of the original trajectory it keeps.
        ran: The solver's run; ``None`` if it was not begun, or failed.
        verdict: What the discriminator found.
        probability: Probability of being on-topic, if the discriminator gives one.
        note: What the discriminator says of its verdict.
        error: Why it failed or was not begun.
        cost: What it took, judging aside.
    """

    stage: Stage
    hop: int | None = None
    page: int | None = None
    resumed: int = 0
    ran: Ran | None = None
    verdict: str | None = None
    probability: float | None = None
    note: str | None = None
    error: str | None = None
    cost: Cost = field(default_factory=Cost)

    @property
    def trajectory(self) -> Trajectory:
        """What the solver returned."""
        if self.ran is None:
            raise RuntimeError("the attempt has no trajectory")
        return self.ran.prediction.trajectory

    @property
    def merit(self) -> tuple[int, float, bool]:
        """By what the best of several attempts is told."""
        return _RANK[self.verdict or "undecided"], self.probability or 0.0, bool(self.trajectory.answer)

    def record(self, *, kept: bool) -> dict[str, Any]:
        """The attempt as a JSON object; hops are counted from 1."""
        hops = () if self.ran is None else self.trajectory.hops
        return {
            "stage": self.stage,
            "hop": None if self.hop is None else self.hop + 1,
            "page": self.page,
            "answer": None if self.ran is None else self.trajectory.answer,
            "verdict": self.verdict,
            "probability": self.probability,
            "note": self.note,
            "error": self.error,
            "kept": kept,
            "sub_questions": [hop.sub_question for hop in hops],
            "conclusions": [hop.answer for hop in hops],
            "passages": list(dict.fromkeys(passage.id for hop in hops for passage in hop.passages)),
            "cost": asdict(self.cost),
        }


class Correction:
    """The attempts to correct one answer.

    Args:
        original: The solver's own trajectory.
        settings: What to try, and within what budget.
        k: Passages that a hop reads.
        names_kinds: Whether the discriminator names kinds of answer, which it can then be told the next time.
    """

    def __init__(self, original: Ran, settings: Dr3Settings, *, k: int, names_kinds: bool) -> None:
        self.original: Trajectory = original.prediction.trajectory
        self.settings = settings
        self._k = k
        self._names_kinds = names_kinds
        self._first = Attempt("solve", resumed=len(self.original.hops), ran=original, cost=self.original.cost)
        self._attempts = [self._first]
        self._now = self._first
        self._best: Attempt | None = None
        self._overhead = Cost()  # judging and searching, which belong to no attempt
        self._spent = Cost()  # what correcting took so far
        self._judged: dict[str, dspy.Prediction] = {}

    @property
    def best(self) -> Attempt:
        """The best attempt so far."""
        return self._best or self._first

    def run(self) -> Generator[Any, Any, None]:
        """Judge the solver's answer, and correct it if need be.

        Raises:
            InputError: The discriminator returns something else than a verdict.
        """
        wanted = self.settings
        stages = {
            self._recompose: wanted.recompose,
            self._resolve: wanted.resolve,
            self._redecompose: wanted.redecompose,
        }
        try:
            ended = yield from self._judge(self._first)
            for stage in (stage for stage, chosen in stages.items() if chosen):
                if not ended:
                    ended = yield from stage()
        except InputError:
            raise
        except Exception as error:  # noqa: BLE001 - the best answer so far is worth more, and the record tells why
            self._failed(error)

    def result(self) -> Trajectory:
        """The best trajectory, with the cost of all attempts and their records."""
        best, original = self.best, self.original
        hops, other_cost = best.trajectory.hops, best.trajectory.other_cost
        others = [self._overhead, *(attempt.cost for attempt in self._attempts[1:] if attempt is not best)]
        if best is not self._first:
            # Its first hops are the original's, which paid for them but for what was done about them since.
            paid = zip(hops, original.hops[: best.resumed], strict=False)
            hops = (*(replace(hop, cost=old.cost + hop.cost) for hop, old in paid), *hops[best.resumed :])
            others += [original.other_cost, *(hop.cost for hop in original.hops[best.resumed :])]
        records = tuple(attempt.record(kept=attempt is best) for attempt in self._attempts)
        revisions = (*best.trajectory.revisions, *records)
        return replace(best.trajectory, hops=hops, other_cost=sum(others, other_cost), revisions=revisions)

    # --- the three corrections ----------------------------------------------------------------------------------------

    def _recompose(self) -> _Ends:
        answer = (self.original.answer or "").strip()
        if not answer:
            return False  # there is nothing that a hint could name
        attempt = Attempt("recompose", resumed=len(self.original.hops))
        if self._used_up(attempt):
            return True
        rejected = (*self.original.rejected, answer)
        start = replace(self.original, answer=None, answer_confidence=None, passages=(), rejected=rejected)
        return (yield from self._attempt(attempt, start))

    def _resolve(self) -> _Ends:
        for place in reversed(range(len(self.original.hops))):
            hop = self.original.hops[place]
            if hop.source == "calculator":
                continue  # it depends on no passage
            attempt = Attempt("resolve", place, resumed=place)
            if self._used_up(attempt):
                return True
            self._now, query = attempt, hop.query or hop.sub_question
            searched: Found = yield Find(query, max(self._k, self.settings.resolve_depth))
            self._count(searched.cost)
            opened = replace(hop, source="search", query=query, answer="", answer_confidence=None, cost=Cost())
            # A prefix of no hops has no plan, but this one's is still to be followed.
            prefix = replace(self.original.prefix(place), plan=self.original.plan)
            first = 2 if hop.passages else 1
            for page, passages in enumerate(_pages(hop, searched.passages, self._k), first):
                attempt = Attempt("resolve", place, page, resumed=place)
                # The search was for the first of them at least.
                if page > first and self._used_up(attempt):
                    return True
                if (yield from self._attempt(attempt, replace(prefix, open=replace(opened, passages=passages)))):
                    return True
        return False

    def _redecompose(self) -> _Ends:
        original = self.original
        plan = original.plan or tuple(hop.sub_question for hop in original.tasks) or (original.question,)
        # The whole question's own hop, which some solvers begin with, is no part of a plan.
        whole = len(original.hops) - len(original.tasks)
        attempt = Attempt("redecompose", resumed=whole)
        if self._used_up(attempt):
            return True
        start = replace(original.prefix(whole), plan=None, failed_plans=(*original.failed_plans, plan))
        return (yield from self._attempt(attempt, start))

    # --- one attempt --------------------------------------------------------------------------------------------------

    def _attempt(self, attempt: Attempt, start: Trajectory) -> _Ends:
        """Resume and judge."""
        self._now = attempt
        self._attempts.append(attempt)
        # Its account then holds only what it takes itself.
        free = replace(start, hops=tuple(replace(hop, cost=Cost()) for hop in start.hops), other_cost=Cost())
        ran: Ran = yield Run("solver", {"question": start.question, "trajectory": free})
        attempt.ran, attempt.cost = ran, ran.cost
        self._spent = self._spent + ran.cost
        return (yield from self._judge(attempt))

    def _judge(self, attempt: Attempt) -> _Ends:
        """Judge an attempt and see if it is the best."""
        answer = (attempt.trajectory.answer or "").strip()
        if answer not in self._judged:
            inputs: dict[str, Any] = {"question": self.original.question, "answer": answer}
            known = next((judged.kinds for judged in self._judged.values() if judged.get("kinds")), None)
            if self._names_kinds and known:
                inputs["kinds"] = known
            ran: Ran = yield Run("discriminator", inputs)
            self._count(ran.cost)
            self._judged[answer] = ran.prediction
        judged = self._judged[answer]
        attempt.verdict, attempt.probability = _verdict(judged), judged.get("probability")
        attempt.note = judged.get("note")
        if self._best is None or attempt.merit > self._best.merit:
            self._best = attempt
        return attempt.verdict == "on_topic" or (attempt.verdict == "undecided" and self.settings.undecided == "keep")

    def _count(self, cost: Cost) -> None:
        self._overhead, self._spent = self._overhead + cost, self._spent + cost

    def _used_up(self, attempt: Attempt) -> bool:
        calls, searches, limits = self._spent.lm_calls, self._spent.retrievals, self.settings
        searches_left = searches < limits.max_retrievals or attempt.stage == "recompose"
        if calls < limits.max_lm_calls and searches_left:
            return False
        attempt.error = f"not begun: the budget is used up ({calls} LM calls, {searches} retrievals)"
        self._attempts.append(attempt)
        return True

    def _failed(self, error: Exception) -> None:
        attempt = self._now
        if attempt not in self._attempts:
            self._attempts.append(attempt)
        attempt.error = f"{type(error).__name__}: {error}"
        if attempt.ran is not None:  # it was the judgement that failed
            attempt.verdict = "undecided"
        elif isinstance(reached := getattr(error, "trajectory", None), Trajectory):
            attempt.cost = reached.cost


def _verdict(judged: dspy.Prediction) -> str:
    verdict = judged.get("verdict")
    if verdict not in _RANK:
        raise InputError(f"a discriminator's `verdict` is one of {', '.join(_RANK)}, got {verdict!r}")
    return verdict


def _pages(hop: Hop, ranked: Sequence[Passage], k: int) -> list[tuple[Passage, ...]]:
    """The passages that the hop has not read, best first, as many at a time as it reads."""
    read = {passage.id for passage in hop.passages}
    rest = [passage for passage in ranked if passage.id not in read]
    return [tuple(rest[start : start + k]) for start in range(0, len(rest), k)]
