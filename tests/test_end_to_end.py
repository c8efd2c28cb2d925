"""The real embedded LM and a real ColBERT index, on the bundled sample."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import dspy
import pytest
from click.testing import CliRunner

from hopgate.cli import main
from hopgate.core import HopgateError
from hopgate.core.weights import resolve
from hopgate.evaluation import exact_match, sample_corpus_path, sample_questions
from hopgate.index import ColBERTIndex
from hopgate.lms import CompactAdapter, lm_from_config
from hopgate.programs import ActiveQA, Trajectory

MODEL = "embedded/qwen2.5-coder-1.5b"


def _missing() -> str | None:
    if importlib.util.find_spec("xllamacpp") is None:
        return "xllamacpp is not installed: pip install 'hopgate[embedded]'"
    try:
        for name in ("qwen2.5-coder-1.5b", "minilm"):
            resolve(name)
    except HopgateError as error:
        return str(error)
    return None


pytestmark = [pytest.mark.lm, pytest.mark.skipif(_missing() is not None, reason=str(_missing()))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sample") / "index"
    ColBERTIndex.build(sample_corpus_path(), path)
    return path


def _question(identifier: str) -> str:
    return next(question.question for question in sample_questions() if question.id == identifier)


def test_what_the_lm_knows_is_not_searched_for_and_the_rest_is(folder: Path) -> None:
    solver = ActiveQA(ColBERTIndex.open(folder))
    with dspy.context(lm=lm_from_config(MODEL), adapter=CompactAdapter()):
        known = solver(question="In which country was the author of Romeo and Juliet born?")
        invented = solver(question=_question("q-i02"))
    assert known.cost.retrievals == 0
    assert exact_match(known.answer, ["England"])
    assert invented.cost.retrievals >= 1
    searched = [hop for hop in invented.trajectory.hops if hop.source == "search"]
    # The inventor is invented too: only the passages can name her.
    assert any(hop.confidence is not None and hop.confidence.mean is not None for hop in searched)
    assert any("drollometer" in passage.text for hop in searched for passage in hop.passages)
    assert Trajectory.from_dict(json.loads(json.dumps(invented.trajectory.to_dict()))) == invented.trajectory
    assert invented.cost.prompt_tokens > invented.cost.prefix_tokens > 0


def test_the_command_line_answers_in_json(folder: Path) -> None:
    result = CliRunner().invoke(
        main, ["ask", "Which guild is Hebra Tunnicast of?", "--index", str(folder), "--program", "rag", "--json"]
    )
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["cost"]["retrievals"] == 1
    assert record["answer"]
