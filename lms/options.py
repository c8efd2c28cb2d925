"""Whether the options of an LM can have the values that they are given, before it is asked anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..core import ModelError

_Count = Annotated[int, Field(ge=1)]
_Penalty = Annotated[float, Field(ge=-2, le=2)]
_Text = Annotated[str, Field(min_length=1)]


class _Options(BaseModel):
    """Options that DSPy, LiteLLM and the embedded engine know alike, with the ranges of DSPy's requests.

    Options of one provider alone are not listed: what they may be only that provider knows.
    """

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: _Count | None = None
    max_tokens: _Count | None = None
    max_completion_tokens: _Count | None = None
    n: _Count | None = None
    seed: int | None = None
    stop: _Text | list[_Text] | tuple[_Text, ...] | None = None
    logprobs: bool | Annotated[int, Field(ge=0)] | None = None
    top_logprobs: Annotated[int, Field(ge=0)] | None = None
    frequency_penalty: _Penalty | None = None
    presence_penalty: _Penalty | None = None
    cache: bool = True
    num_retries: Annotated[int, Field(ge=0)] = 3
    rollout_id: int | None = None
    model_type: Literal["chat", "text", "responses"] = "chat"
    use_developer_role: bool = False
    api_base: _Text | None = None
    base_url: _Text | None = None


def check_options(model: str, options: Mapping[str, Any]) -> None:
    """Refuse an option that can have no such value.

    Args:
        model: The model, for the message.
        options: Options by their names; those that are not known are left to the model.

    Raises:
        ModelError: A value is of another type or out of range; the message names the option.
    """
    try:
        _Options(**options)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        alike = [one["msg"] for one in error.errors() if one["loc"][0] == name]
        wanted = " or ".join(dict.fromkeys(message.removeprefix("Input should be ") for message in alike))
        raise ModelError(f"{model}: `{name}` must be {wanted}, got {options[name]!r:.80}") from error
