"""The page on programs: each has its section, with a diagram, its settings and what it costs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hopgate.programs.registry import PROGRAMS, make_program

TEXT = (Path(__file__).parents[1] / "docs" / "programs.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
SHARED = TEXT.partition("\n## ")[0]


def test_it_documents_the_registered_programs_and_no_others() -> None:
    assert set(SECTIONS) == set(PROGRAMS)
    assert set(re.findall(r"^\| \[`(\S+)`\]\(#\1\)", SHARED, re.MULTILINE)) == set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_section_has_a_diagram_its_settings_its_cost_and_its_source(name: str) -> None:
    section = SECTIONS[name]
    assert re.search(r"```mermaid\nflowchart LR\n.*-->.*```", section, re.DOTALL)
    assert "Cost:" in section and "ource" in section
    known = section + SHARED
    if re.search(r"as `active`|those\s+of `active`", section):
        known += SECTIONS["active"]
    settings = type(make_program(name).settings.values).model_fields
    assert [setting for setting in settings if f"`{setting}`" not in known] == []
