"""What the header of a run says of the LM, and what may differ when the run is resumed or repeated."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest

from hopgate.cli.run_inputs import recorded_lm
from hopgate.evaluation.provenance import describe_lm, describe_program, describe_run, digest
from hopgate.evaluation.records import DataHeader, RunHeader, differences, line_of, read_header
from hopgate.lms import lm_from_config
from hopgate.lms.testing import scripted_lm
from hopgate.programs import RAG, Direct, Trajectory
from hopgate.programs.registry import PROGRAMS, make_program


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is taken for the weights of an embedded LM, as long as no one asks it anything."""
    monkeypatch.setattr("hopgate.lms.config.check_bindings", lambda: None)
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF" + bytes(64))
    return path


def header(lm: dspy.LM) -> RunHeader:
    with dspy.context(lm=lm):
        return describe_run(Direct(), DataHeader("toy", ids=("q1",)), name="a", seed=0, normalisation="official")


def embedded(weights: Path, **options: Any) -> dspy.LM:
    return lm_from_config({"model": f"embedded/{weights}", "cache": False, **options})


def test_the_options_of_the_engine_are_in_the_header(weights: Path, tmp_path: Path) -> None:
    lm = embedded(weights, n_ctx=2048, slots=3, threads=5, cache_mib=64)
    told = header(lm).lm
    assert told == {
        "model": lm.model, "temperature": 0.0, "max_tokens": 512, "cache": False,
        "n_ctx": 2048, "slots": 3, "threads": 5, "cache_mib": 64,
    }  # fmt: skip
    assert str(weights.parent) not in str(told)
    file = tmp_path / "a.jsonl"
    file.write_bytes(line_of(header(lm)))
    assert read_header(file).lm == told


def test_what_was_left_to_the_engine_is_told_as_used(weights: Path) -> None:
    told = describe_lm(embedded(weights))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert told["threads"] == cores and told["n_ctx"] == 8192 and told["slots"] == 2 and told["cache_mib"] == 1024


def test_other_lms_have_no_engine_options() -> None:
    assert describe_lm(scripted_lm([("", "x")])) == {"model": "scripted/lm", "cache": False}


@pytest.mark.parametrize("option", ["n_ctx", "slots", "cache_mib"])
def test_an_engine_with_another_option_is_another_lm(weights: Path, option: str) -> None:
    old, new = header(embedded(weights)), header(embedded(weights, **{option: 512}))
    assert [text for text in differences(old, new) if option in text] and len(differences(old, new)) == 1


def test_threads_and_what_an_old_header_does_not_tell_may_differ(weights: Path) -> None:
    new = header(embedded(weights, n_ctx=512, threads=7))
    assert differences(header(embedded(weights, n_ctx=512, threads=1)), new) == []
    known = ("model", "temperature", "max_tokens", "cache")
    old = replace(new, lm={name: new.lm[name] for name in known})
    assert differences(old, new) == []
    assert differences(old, replace(new, lm={**new.lm, "top_p": 0.5})) == ["LM option `top_p` null, now 0.5"]


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {"always", "never", "static", "fused"}))
def test_a_program_is_recorded_by_the_name_that_makes_it(name: str) -> None:
    assert describe_program(make_program(name)).name == name


def test_always_is_a_setting_and_a_program_of_others_has_the_name_of_its_class() -> None:
    class Mine(RAG):
        pass

    always = describe_program(make_program("always"))
    assert always.name == "active" and always.settings["gate"] == "always"
    assert describe_program(Mine(None)).name == "Mine" and describe_program(lambda question: None).name == "function"


def test_a_setting_that_the_program_did_not_have_yet_may_have_its_default(tmp_path: Path) -> None:
    def made(**settings: Any) -> RunHeader:
        with dspy.context(lm=scripted_lm([("", "x")])):
            program = RAG(None)
            program.settings.update(**settings)
            return describe_run(program, DataHeader("toy", ids=("q1",)), name="a", seed=0, normalisation="official")

    new = made()
    assert new.program.state is not None
    settings = {name: value for name, value in new.program.settings.items() if name != "passage_words"}
    before = {"version": 1, **settings}
    state = {**new.program.state, "settings": before}
    old = replace(new, program=replace(new.program, settings=settings, state=state, state_sha256=digest(state)))
    assert differences(old, new) == []
    assert differences(old, made(passage_words=5)) == ["setting `passage_words` null, now 5"]
    assert differences(new, old) == ["setting `passage_words` 70, now null"]
    # The same with what headers tell in the state alone.
    examples = made(examples=[Trajectory("Why?", answer="So")])
    assert examples.program.state is None and len(differences(old, examples)) == 1
    other = {**state, "respond": {**state["respond"], "demos": [{"question": "Why?"}]}}
    assert differences(replace(old, program=replace(old.program, state=other, state_sha256=digest(other))), new)


def test_a_repetition_has_the_same_engine_on_its_own_threads(weights: Path) -> None:
    old = header(embedded(weights, n_ctx=512, slots=1, threads=7, temperature=0.5))
    again = header(recorded_lm(old, f"embedded/{weights}"))
    assert differences(old, again) == []
    assert again.lm["threads"] == describe_lm(embedded(weights))["threads"]
