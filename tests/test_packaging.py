"""What the package is made of: rooms, requirements, pins, and what importing it costs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from hopgate.core.known_weights import WEIGHTS

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS = PROJECT["tool"]["setuptools"]["package-dir"]
NOT_ROOMS = {"tests", "benchmarks", "examples", "build", "dist"}


def package_name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def direct_requirements() -> list[str]:
    project = PROJECT["project"]
    return [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = {}
    for line in lines:
        if line and not line.startswith("#"):
            name, separator, version = line.partition("==")
            assert separator, f"not an exact pin: {line}"
            found[package_name(name)] = version
    return found


def test_packages_that_carry_weights_are_no_requirements() -> None:
    carriers = {package_name(carrier.package) for weights in WEIGHTS.values() for carrier in weights.carriers}
    named = {package_name(requirement) for requirement in direct_requirements()} | set(pins())
    assert len(carriers) == 24
    assert not carriers & named


def test_constraints_pin_every_direct_requirement_within_its_range() -> None:
    pinned = pins()
    for line in direct_requirements():
        requirement = Requirement(line)
        name = package_name(requirement.name)
        assert name in pinned, f"{name} is not pinned in constraints.txt"
        assert requirement.specifier.contains(pinned[name]), f"{name}=={pinned[name]} is outside {line}"
    assert not [version for version in pinned.values() if "+" in version]


def test_every_room_is_packaged_and_typed() -> None:
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")} - NOT_ROOMS
    assert folders == set(ROOMS.values())
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == set(ROOMS)
    assert set(PROJECT["tool"]["pyright"]["include"]) == set(ROOMS.values())
    for folder in ROOMS.values():
        assert (ROOT / folder / "py.typed").is_file(), folder
        inner = [path for path in (ROOT / folder).rglob("*.py") if path.parent != ROOT / folder]
        assert not inner, "a package inside a room must be listed in pyproject.toml"


def test_licence_and_notice_are_there() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    for name in ("all-MiniLM-L6-v2", "Qwen2.5-Coder", "SmolLM2", "colbert-ai"):
        assert name in notice


def imported_with(*modules: str) -> set[str]:
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in run.stdout.split()}


def test_core_imports_nothing_heavy() -> None:
    modules = ["hopgate.core", *(f"hopgate.core.{path.stem}" for path in (ROOT / "core").glob("[!_]*.py"))]
    heavy = {"torch", "dspy", "transformers", "huggingface_hub", "requests", "numpy", "litellm", "colbert"}
    assert not imported_with(*modules) & heavy


def test_signatures_import_no_torch() -> None:
    assert "torch" not in imported_with("hopgate.signatures")
