"""What a program says about a setting that it does not have, or that cannot have a value."""

from __future__ import annotations

from typing import Any

import pytest

from hopgate.core import InputError
from hopgate.programs import ActiveQA, ActiveSettings, Discriminator, DiscriminatorSettings, ProgramSettings
from hopgate.programs.registry import PROGRAMS, make_program

PYDANTIC = ("Input should", "Extra inputs", "Value error")


def refused(name: str, **settings: Any) -> str:
    with pytest.raises(InputError) as caught:
        make_program(name, **settings)
    message = str(caught.value)
    assert not any(words in message for words in PYDANTIC), message
    return message


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_unknown_name_is_told_with_those_that_there_are(name: str) -> None:
    message = refused(name, nope=1)
    assert message.startswith("there is no setting `nope`; there are k, passage_words") and "?" not in message
    likely = refused(name, Passage_Word=5)
    assert "no setting `Passage_Word`; did you mean `passage_words`? There are k, passage_words" in likely
    if "tau" in message:
        for typed in ("tua", "Tau"):
            assert f"no setting `{typed}`; did you mean `tau`?" in refused(name, **{typed: -1})


def test_thresholds_are_no_settings_of_programs_without_them() -> None:
    assert refused("rag", tau=-1) == "there is no setting `tau`; there are k, passage_words, examples"


def test_settings_of_the_solver_are_told_with_those_of_dr3() -> None:
    assert "did you mean `max_hops`?" in refused("dr3", maxhops=3)
    assert "did you mean `resolve_depth`?" in refused("dr3", resolve_dept=3)


def test_the_constructor_says_the_same() -> None:
    with pytest.raises(InputError, match=r"no setting `tua`; did you mean `tau`\?"):
        ActiveQA(None, tua=-1)
    with pytest.raises(InputError, match=r"no setting `treshold`; did you mean `threshold`\?"):
        Discriminator(treshold=0.5)


@pytest.mark.parametrize(
    ("value", "shown"), [(1, "must be less than or equal to 0 (got 1)"), ("low", "(got 'low')"), (None, "(got None)")]
)
def test_values_are_shown_as_they_were_given(value: Any, shown: str) -> None:
    message = refused("active", tau=value)
    assert message.startswith("setting `tau` must be ") and shown in message


def test_one_of_several_words() -> None:
    assert refused("active", gate="sometimes").startswith("setting `gate` must be 'threshold', 'always', ")


NUMBERS = [
    (model, name)
    for model in (ActiveSettings, DiscriminatorSettings)
    for name, field in model.model_fields.items()
    if field.annotation in (int, float)
]


@pytest.mark.parametrize(("model", "name"), NUMBERS)
@pytest.mark.parametrize("value", [True, False])
def test_truth_values_are_no_numbers(model: type[Any], name: str, value: bool) -> None:
    with pytest.raises(ValueError, match="a number is wanted, not true or false"):
        model(**{name: value})


def test_truth_values_stay_truth_values() -> None:
    assert refused("rag", k=True) == "setting `k`: a number is wanted, not true or false (got True)"
    assert ActiveSettings(reread=True).reread is True and ProgramSettings(k=1).k == 1
