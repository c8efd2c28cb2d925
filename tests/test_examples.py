"""The examples, with a scripted LM in place of a model; the index of ``library.py`` is a real one."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hopgate.core import HopgateError
from hopgate.core.weights import resolve
from hopgate.evaluation import sample_questions
from hopgate.evaluation.records import read_run
from hopgate.lms.testing import Reply, scripted_lm

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "library.py"

# Runs in processes of its own: one compiles and saves the program, another loads it and asks the same.
SCRIPT = """
import json, re, sys
from pathlib import Path
from typing import Any
sys.path.insert(0, sys.argv[1])
import dspy, library
from hopgate.evaluation import sample_questions
from hopgate.index import ColBERTIndex
from hopgate.lms import CompactAdapter
from hopgate.lms.testing import Reply, scripted_lm

GOLD = {q.question: q.answers[0] for q in sample_questions()}

def script(prompt):
    question = re.findall(r"^user: Question: (.*)$", prompt, re.M)[-1]
    last = prompt.splitlines()[-1]
    if last.endswith("Task 1:"):
        return Reply(" " + question)
    return Reply(" none") if "Task" in last else Reply(" " + GOLD[question], -0.1)

def lm(model):
    return scripted_lm(script)

if __name__ == "__main__":
    mode, folder, question = sys.argv[2:]
    if mode == "compile":
        library.lm_from_config = lm
        library.main(Path(folder), "scripted")
    else:
        program = library.WithSources(ColBERTIndex.open(folder + "/index"))
        program.load(folder + "/program.json")
        with dspy.context(lm=lm(""), adapter=CompactAdapter()):
            answer = program(question=question).answer
        print(json.dumps({"answer": answer, "tau": program.solver.tau, "demos": len(program.solver.compose.demos)}))
"""


def _missing() -> str | None:
    try:
        resolve("minilm")
    except HopgateError as error:
        return str(error)
    return None


@pytest.mark.skipif(_missing() is not None, reason=str(_missing()))
def test_the_library_example(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    question = sample_questions("train")[1]
    printed = _run(tmp_path, "compile", question.question)
    assert f"alone: {sample_questions('train')[0].answer}\n" in printed
    assert f"answer={question.answer!r}" in printed and "tau -0.25" in printed
    saved = (tmp_path / "program.json").read_text()
    assert not re.search(r"api_key|/tmp|/home|/root|\.gguf|logprobs", saved)
    record = json.loads(_run(tmp_path, "load", question.question).splitlines()[-1])
    assert record == {"answer": question.answer, "tau": -0.25, "demos": 1}


@pytest.mark.parametrize("arguments", [(), ("folder", "model", "more")])
def test_without_a_folder_it_says_how_it_is_run(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    command = [sys.executable, EXAMPLE, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 1 and result.stdout == ""
    assert "python examples/library.py FOLDER [MODEL]" in result.stderr and "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def _run(folder: Path, mode: str, question: str) -> str:
    command = [sys.executable, folder / "script.py", EXAMPLE.parent, mode, folder, question]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def demo() -> Any:
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_demo_says_what_to_expect(demo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "lm_from_config", lambda model: scripted_lm(lambda prompt: Reply(" Germany", -0.01)))
    monkeypatch.setattr(demo.ColBERTIndex, "open", lambda path: lambda query, k: ["A passage."])
    result = CliRunner().invoke(demo.main, [str(tmp_path)], catch_exceptions=False)
    printed = " ".join(result.stdout.split())
    assert result.exit_code == 0 and printed.startswith("The embedded LM is a small one")
    assert "20 seconds to some minutes" in printed and printed.endswith("1 of 3 answers are right.")
    assert "embedded LM" not in CliRunner().invoke(demo.main, [str(tmp_path), "--lm", "openai/x"]).stdout


def test_the_questions_of_the_demo_were_answered_right(demo: Any) -> None:
    found = read_run(ROOT / "benchmarks" / "results" / "sample-test-active.jsonl").by_id
    assert len(demo.QUESTIONS) == 3 and all(found[identity].scores.em for identity in demo.QUESTIONS)


def test_the_readme_shows_the_example() -> None:
    assert EXAMPLE.read_text().strip() in (ROOT / "README.md").read_text()


@pytest.mark.skipif(_missing() is not None, reason=str(_missing()))
def test_the_index_example_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow
    import pyarrow.parquet

    section = (ROOT / "README.md").read_text().split("## Indexes")[1]
    code = section.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    records = [{"id": str(number), "text": f"Bridge {number} is long.", "year": 1890 + number} for number in range(20)]
    Path("corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    long = " ".join(f"Sentence {number} is about the sea." for number in range(60))
    pyarrow.parquet.write_table(pyarrow.table({"title": ["Sea"], "text": [long]}), "articles.parquet")
    names: dict[str, Any] = {}
    exec(code, names)
    index = names["index"]
    assert len(index) == 20 and index.passages(["99"])[0].title == "Osk Tower"
    found = index.search("who designed the bridge?", k=5, filter=lambda metadata: metadata.get("year", 0) > 1900)
    assert len(found) == 5 and all(passage.metadata["year"] > 1900 for passage in found)
    assert len(names["ColBERTIndex"].open("articles")) > 2
