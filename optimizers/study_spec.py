"""What a study is about, and whether a recorded one is about the same."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..core import InputError

SCHEMA = 1
"""Version of the record that :meth:`StudySpec.record` makes."""

_DIRECTIONS = ("maximize", "minimize")
_DIGEST = re.compile("[0-9a-f]{32,}")
_SCALARS = (str, int, float, bool, type(None))


@dataclass(frozen=True)
class StudySpec:
    """What a study is about; workers that share it give the same.

    Attributes:
        name: The study's name in its storage.
        directions: For each objective, whether more or less is better.
        space: The choices of each (categorical) parameter: JSON scalars, all different.
        fingerprint: What the trials mean (program, digest of the data, metric, versions): JSON.
        seed: Of the sampler, not negative.
        first: Parameter sets that are evaluated before the sampler is asked, such as the unchanged program.

    Raises:
        InputError: One of them cannot be used; the message names it.
    """

    name: str
    directions: tuple[Literal["maximize", "minimize"], ...]
    space: Mapping[str, tuple[Any, ...]]
    fingerprint: Mapping[str, Any]
    seed: int = 0
    first: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip() or "\0" in self.name or len(self.name) > 512:
            raise InputError(f"a study's name must be a text of 1 to 512 characters, got {self.name!r}"[:200])
        if not self.directions or any(direction not in _DIRECTIONS for direction in self.directions):
            raise InputError(f"study {self.name}: `directions` must be maximize or minimize, got {self.directions!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise InputError(f"study {self.name}: `seed` must be an integer that is not negative, got {self.seed!r}")
        if not self.space:
            raise InputError(f"study {self.name}: `space` must name at least one parameter")
        for parameter, choices in self.space.items():
            self._check_choices(parameter, choices)
        try:
            as_json(self.fingerprint)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"study {self.name}: `fingerprint` must be JSON: {error}") from error
        seen = [self.place(parameters) for parameters in self.first]
        if len(set(seen)) < len(seen):
            raise InputError(f"study {self.name}: `first` holds the same parameters twice")

    def _check_choices(self, parameter: str, choices: tuple[Any, ...]) -> None:
        where = f"study {self.name}: parameter {parameter!r}"
        if not isinstance(parameter, str) or not parameter or len(parameter) > 512:
            raise InputError(f"{where}: its name must be a text of 1 to 512 characters")
        if isinstance(choices, str) or not choices:
            raise InputError(f"{where}: needs at least one choice")
        for choice in choices:
            if not isinstance(choice, _SCALARS) or (isinstance(choice, float) and not math.isfinite(choice)):
                raise InputError(f"{where}: a choice must be a text, number, boolean or null, got {choice!r}"[:300])
        if len(set(choices)) < len(choices):  # 1, 1.0 and True are one
            raise InputError(f"{where}: two of its choices are equal: {list(choices)!r}"[:300])

    @property
    def size(self) -> int:
        """How many parameter sets there are."""
        return math.prod(len(choices) for choices in self.space.values())

    def place(self, parameters: Mapping[str, Any]) -> int:
        """Which of all parameter sets this is, from 0.

        Raises:
            InputError: They are not parameters of this space.
        """
        if set(parameters) != set(self.space):
            raise InputError(
                f"study {self.name}: parameters {sorted(parameters)}, but its space has {sorted(self.space)}"
            )
        place = 0
        for name, choices in self.space.items():
            value = parameters[name]
            digit = next((digit for digit, choice in enumerate(choices) if _alike(choice, value)), None)
            if digit is None:
                raise InputError(f"study {self.name}: {value!r} is no choice of {name!r}: {list(choices)!r}"[:300])
            place = place * len(choices) + digit
        return place

    def at(self, place: int) -> dict[str, Any]:
        """The parameter set at a place."""
        found: dict[str, Any] = {}
        for name, choices in reversed(list(self.space.items())):
            place, digit = divmod(place, len(choices))
            found[name] = choices[digit]
        return {name: found[name] for name in self.space}

    def record(self) -> dict[str, Any]:
        """The spec as a study keeps it."""
        return as_json(
            {
                "schema": SCHEMA,
                "directions": list(self.directions),
                "space": {name: list(choices) for name, choices in self.space.items()},
                "seed": self.seed,
                "first": [dict(parameters) for parameters in self.first],
                "fingerprint": dict(self.fingerprint),
            }
        )

    def differences(self, recorded: Any) -> list[str]:
        """What differs between a recorded study and this one, for people."""
        if not isinstance(recorded, dict) or not isinstance(recorded.get("schema"), int):
            return ["it was not made by hopgate"]
        if recorded["schema"] > SCHEMA:
            return [f"it was made by a newer version of hopgate (format {recorded['schema']}, this one reads {SCHEMA})"]
        found: list[str] = []
        mine = self.record()
        for key, what in (("directions", "directions"), ("seed", "seed"), ("first", "first parameter sets")):
            if recorded.get(key) != mine[key]:
                found.append(f"{what} {_short(recorded.get(key))}, now {_short(mine[key])}")
        found += _table("parameter", recorded.get("space"), mine["space"])
        return found + _table("fingerprint", recorded.get("fingerprint"), mine["fingerprint"])


def _alike(choice: Any, value: Any) -> bool:
    return isinstance(choice, bool) is isinstance(value, bool) and bool(choice == value)  # True is not 1


def as_json(value: Any) -> Any:
    """A copy of a value as JSON gives it back.

    Raises:
        TypeError: It holds something else than JSON.
        ValueError: It holds NaN or an infinity, or itself.
    """
    return json.loads(json.dumps(value, allow_nan=False))


def _table(what: str, old: Any, new: Any, prefix: str = "") -> list[str]:
    if not isinstance(old, dict) or not isinstance(new, dict):
        if _same(old, new):
            return []
        digests = all(isinstance(value, str) and _DIGEST.fullmatch(value) for value in (old, new))
        return [f"{what} `{prefix}` is another" if digests else f"{what} `{prefix}` {_short(old)}, now {_short(new)}"]
    found: list[str] = []
    for name in {**old, **new}:
        path = f"{prefix}.{name}" if prefix else name
        if name not in new:
            found.append(f"{what} `{path}` {_short(old[name])}, now absent")
        elif name not in old:
            found.append(f"{what} `{path}` absent, now {_short(new[name])}")
        else:
            found += _table(what, old[name], new[name], path)
    return found


def _same(old: Any, new: Any) -> bool:
    return json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)  # 1 and true are two


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:80]}..."
