"""``CompactAdapter``: a DSPy adapter that spends few tokens and keeps the prompts of one program's steps alike.

A signature is rendered as short ``Field: value`` lines instead of headers and a description of the format. Signatures
with an input ``trajectory: str`` get the *transcript form*: a fixed preamble, worked examples, the question, the
trajectory so far, and only then this step's instruction and the label of the line to be written. All steps of a program
then share one prompt prefix, which a prefix cache holds already, and history only grows.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import dspy
from dspy.adapters.utils import (
    annotation_allows_none,
    apply_output_field_defaults,
    format_field_value,
    get_annotation_name,
    parse_value,
)
from dspy.utils.exceptions import AdapterParseError

from ..core import InputError
from .spans import label_pattern

TRAJECTORY_FIELD = "trajectory"
"""Name of the input field that makes a signature be rendered in the transcript form."""

TRANSCRIPT_KEY = "transcript"
"""Key of a demo that holds a whole worked example, shared by all steps; such demos come first, each text once."""

_PREAMBLE = (
    "Answer questions that need several facts, line by line, as in the examples. "
    "Each task asks for one fact. Conclusions and answers are as short as possible."
)
# Before each further line of a value. No LM writes it by itself, so what one indents on its own stays as it is.
_MORE = "\u2502 "

ONE_LINE_KEY = "one_line"
"""Key in an output field's ``json_schema_extra``: the value is one line. As the only output it ends with its line,
which saves the tokens of whatever a small model would write after its answer."""

STOP_KEY = "stop"
"""Key in the last output field's ``json_schema_extra``: texts at which an LM that continues the transcript stops, such
as the label of the line that the program writes next."""

IMPLIED_KEY = "implied_instruction"
"""Key in an output field's ``json_schema_extra``: an instruction that the worked examples say already. Small models
that continue a transcript follow its form better without it, so it is left out; any other instruction is written."""


class CompactAdapter(dspy.Adapter):
    """Render signatures as ``Field: value`` lines.

    The label of a field is its ``prefix``, which teleprompters may change; ``#`` in it stands for the number of the
    line. Further lines of a value begin with a bar, so that no value can be mistaken for the next field. The embedded
    engine continues a trailing assistant message as it stands, so the label to be written is already given to it; other
    LMs are asked for it in a user turn.

    Args:
        callbacks: Callbacks of DSPy's adapters.
        line_tokens: Limit on the tokens of a line that an LM continues, where the call has none of its own.

    Example:
        >>> import dspy
        >>> from hopgate.lms import CompactAdapter
        >>> messages = CompactAdapter().format(dspy.Signature("question -> answer"), [], {"question": "Why?"})
        >>> messages[-1]["content"]
        'Question: Why?\\nReply with one line: `Answer:` and its value.'
    """

    def __init__(self, callbacks: list[Any] | None = None, *, line_tokens: int = 96) -> None:
        super().__init__(callbacks=callbacks)
        self.line_tokens = line_tokens
        self._continues = False

    # --- calling ------------------------------------------------------------------------------------------------------

    def __call__(
        self,
        lm: Any,
        lm_kwargs: dict[str, Any],
        signature: type[dspy.Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        adapter, lm_kwargs = self._for_lm(lm, lm_kwargs, signature)
        return dspy.Adapter.__call__(adapter, lm, lm_kwargs, signature, demos, inputs)

    async def acall(
        self,
        lm: Any,
        lm_kwargs: dict[str, Any],
        signature: type[dspy.Signature],
        demos: list[dict[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        adapter, lm_kwargs = self._for_lm(lm, lm_kwargs, signature)
        return await dspy.Adapter.acall(adapter, lm, lm_kwargs, signature, demos, inputs)

    def _for_lm(
        self, lm: Any, lm_kwargs: dict[str, Any], signature: type[dspy.Signature]
    ) -> tuple[CompactAdapter, dict[str, Any]]:
        if not getattr(getattr(lm, "engine", None), "continues_assistant", False):
            return self, lm_kwargs
        # A copy, so that threads with other LMs can use the same adapter meanwhile.
        adapter = copy.copy(self)
        adapter._continues = True
        stop = _stop(signature)
        if stop and "stop" not in lm_kwargs:
            # Only where the label is given: a chat model may begin its reply with an empty line.
            limit = self.line_tokens * len(signature.output_fields)
            lm_kwargs = {"max_tokens": limit, **lm_kwargs, "stop": stop}
        return adapter, lm_kwargs

    # --- rendering ----------------------------------------------------------------------------------------------------

    def format(
        self, signature: type[dspy.Signature], demos: list[dict[str, Any]], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Messages for one call; see the module's description for their order."""
        if not _is_transcript(signature):
            messages = super().format(signature, demos, inputs)
            return (
                [*messages, {"role": "assistant", "content": _first_label(signature)}] if self._continues else messages
            )
        _check_text(signature)
        # Labelled demos go to every predictor; one without an output of this step shows nothing.
        own = [demo for demo in demos if TRANSCRIPT_KEY not in demo and _has_output(signature, demo)]
        shared = dict.fromkeys(str(demo[TRANSCRIPT_KEY]) for demo in demos if TRANSCRIPT_KEY in demo)
        examples = [*shared, *(self._step_example(signature, demo) for demo in own)]
        system = "\n\n".join([_PREAMBLE, *(f"Example:\n{example}" for example in examples)])
        given = {name: value for name, value in inputs.items() if name != TRAJECTORY_FIELD}
        messages = [
            {"role": "system", "content": system},
            {"role": "user", "content": self._lines(signature.input_fields, given)},
        ]
        return [*messages, *self._step(signature, str(inputs.get(TRAJECTORY_FIELD) or "").strip())]

    def _step(self, signature: type[dspy.Signature], transcript: str) -> list[dict[str, Any]]:
        if self._continues:
            instruction = "" if _implied(signature) else f"({_instructions(signature)})"
            lines = [transcript, instruction, _first_label(_numbered(signature, transcript))]
            return [{"role": "assistant", "content": "\n".join(filter(None, lines))}]
        # As turns: what was written so far is the assistant's, the instruction is the user's.
        turns = [{"role": "assistant", "content": transcript}] if transcript else []
        instruction = f"{_instructions(signature)}\n{self._request(_numbered(signature, transcript))}".strip()
        return [*turns, {"role": "user", "content": instruction}]

    def _step_example(self, signature: type[dspy.Signature], demo: Mapping[str, Any]) -> str:
        given = {name: demo[name] for name in signature.input_fields if name in demo and name != TRAJECTORY_FIELD}
        written = {name: demo[name] for name in signature.output_fields if demo.get(name) is not None}
        transcript = str(demo.get(TRAJECTORY_FIELD) or "").strip()
        parts = [self._lines(signature.input_fields, given), transcript]
        return "\n".join([*filter(None, parts), self._lines(_numbered(signature, transcript).output_fields, written)])

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """The instruction, and what the output fields are where their names alone do not say it."""
        notes = [
            f"{_label(field)} {_note(name, field)}"
            for name, field in signature.output_fields.items()
            if _note(name, field)
        ]
        return "\n".join([_instructions(signature), *notes]).strip()

    def format_user_message_content(
        self,
        signature: type[dspy.Signature],
        inputs: dict[str, Any],
        prefix: str = "",
        suffix: str = "",
        main_request: bool = False,
    ) -> str:
        """The inputs as lines; for the request itself also which lines to write."""
        # The note on missing fields that DSPy puts before an incomplete demo would cost more than the demo.
        parts = [self._lines(signature.input_fields, inputs), suffix]
        if main_request:
            parts.append(self._request(signature))
        return "\n".join(filter(None, parts))

    def format_assistant_message_content(
        self, signature: type[dspy.Signature], outputs: dict[str, Any], missing_field_message: str | None = None
    ) -> str:
        """The outputs as lines; outputs that a demo lacks are left out."""
        present = {name: outputs[name] for name in signature.output_fields if outputs.get(name) is not None}
        return self._lines(signature.output_fields, present)

    def _request(self, signature: type[dspy.Signature]) -> str:
        labels = [f"`{_label(field)}`" for field in signature.output_fields.values()]
        if self._continues and len(labels) == 1:
            return ""  # The label is given already.
        if len(labels) == 1:
            return f"Reply with {'one line: ' if _one_line(signature) else ''}{labels[0]} and its value."
        return f"Reply with the lines {', '.join(labels)}, each with its value."

    def _lines(self, fields: Mapping[str, Any], values: Mapping[str, Any]) -> str:
        lines = []
        for name, field in fields.items():
            if name in values:
                text = _render(field, values[name])
                lines.append(f"{_label(field)} {text}" if not text.startswith("\n") else f"{_label(field)}{text}")
        return "\n".join(lines)

    # --- parsing ------------------------------------------------------------------------------------------------------

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """Read the output fields from a completion.

        Text before the first label is the value of the first field, whose label the prompt may already have given.

        Raises:
            AdapterParseError: A field is missing, or its value is not of its type.
        """
        first = next(iter(signature.output_fields))
        labels = {
            name: re.compile(rf"[ \t]?{label_pattern(_label(field))}", re.IGNORECASE)
            for name, field in signature.output_fields.items()
        }
        found: dict[str, list[str]] = {}
        filled: set[str] = set()
        current: str | None = first
        labelled = False
        for line in completion.strip().split("\n"):
            name, rest = _labelled(labels, line)
            if name is not None:
                # The first occurrence counts, as in DSPy's own adapters.
                current = name if name not in filled else None
                if name == first and not self._continues and not labelled:
                    current = first  # What a chat model says before the label is no part of the value.
                labelled = True
                if current:
                    found[current] = [rest.lstrip(" \t")]
                    filled.discard(current)
            elif current is not None:
                found.setdefault(current, []).append(line)
            if current is not None and rest.strip():
                filled.add(current)
        values: dict[str, Any] = {}
        for name, field in signature.output_fields.items():
            if name in found and (text := _joined(found[name], one_line=_one_line(signature))):
                values[name] = self._value(signature, name, field, text, completion)
        values = apply_output_field_defaults(signature, values)
        for name, field in signature.output_fields.items():
            if name not in values and annotation_allows_none(field.annotation):
                values[name] = None
        if values.keys() != signature.output_fields.keys():
            raise AdapterParseError(
                adapter_name="CompactAdapter",
                signature=signature,  # type: ignore[arg-type]
                lm_response=completion,
                parsed_result=values,  # type: ignore[arg-type]
            )
        return values

    def _value(self, signature: type[dspy.Signature], name: str, field: Any, text: str, completion: str) -> Any:
        try:
            return parse_value(text, field.annotation)
        except ValueError as error:
            raise AdapterParseError(
                adapter_name="CompactAdapter",
                signature=signature,  # type: ignore[arg-type]
                lm_response=completion,
                message=f"`{name}` cannot be read as {get_annotation_name(field.annotation)}: {error}",
            ) from error


def _numbered(signature: type[dspy.Signature], transcript: str) -> type[dspy.Signature]:
    """The signature with ``#`` in its output labels replaced by the number of the line that is to be written."""
    for name, field in signature.output_fields.items():
        label = _label(field)
        if "#" in label:
            pattern = re.escape(label).replace(r"\#", r"\d+")
            count = len(re.findall(rf"^{pattern}", transcript, re.MULTILINE))
            changes: dict[str, Any] = {"prefix": label.replace("#", str(count + 1))}
            signature = signature.with_updated_fields(name, **changes)
    return signature


def _implied(signature: type[dspy.Signature]) -> bool:
    output: Any = next(iter(signature.output_fields.values()))
    implied = output.json_schema_extra.get(IMPLIED_KEY)
    return signature.instructions == implied or not signature.instructions.strip()


def _labelled(labels: Mapping[str, re.Pattern[str]], line: str) -> tuple[str | None, str]:
    """The output field whose label a line begins with, and the rest of the line."""
    if line.startswith(_MORE):
        return None, line
    best: tuple[str | None, str] = (None, line)
    for name, label in labels.items():
        match = label.match(line)
        # The longest label, where one begins with another.
        if match and len(line) - match.end() < len(best[1]):
            best = (name, line[match.end() :])
    return best


def _is_transcript(signature: type[dspy.Signature]) -> bool:
    field = signature.input_fields.get(TRAJECTORY_FIELD)
    return field is not None and field.annotation is str


def _instructions(signature: type[dspy.Signature]) -> str:
    return " ".join(signature.instructions.split()) if _is_transcript(signature) else signature.instructions.strip()


def _label(field: Any) -> str:
    label = str(field.json_schema_extra["prefix"]).strip()
    return label if label.endswith(":") else f"{label}:"


def _first_label(signature: type[dspy.Signature]) -> str:
    return _label(next(iter(signature.output_fields.values())))


def _note(name: str, field: Any) -> str:
    desc = field.json_schema_extra.get("desc") or ""
    kind = "" if field.annotation is str else get_annotation_name(field.annotation)
    return " ".join(filter(None, [f"({kind})" if kind else "", "" if desc == f"${{{name}}}" else desc]))


def _render(field: Any, value: Any) -> str:
    is_input = field.json_schema_extra.get("__dspy_field_type") == "input"
    if is_input and isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        # Numbered lines, without the quotation marks that DSPy puts around each item.
        return "".join(f"\n[{i}] {_indent(item)}" for i, item in enumerate(value, 1)) or "none"
    return _indent(str(format_field_value(field_info=field, value=value)).strip())


def _indent(text: str) -> str:
    return text.strip().replace("\n", f"\n{_MORE}")


def _joined(lines: list[str], *, one_line: bool) -> str:
    """The value that lines make up; of a one-line value the first line that is not empty, without bold face."""
    if one_line:
        line = next((line.strip() for line in lines if line.strip()), "")
        match = re.fullmatch(r"(\*\*|`)(.+)\1", line)
        return match.group(2).strip() if match and match.group(1) not in match.group(2) else line
    return "\n".join(line.removeprefix(_MORE) if number else line for number, line in enumerate(lines)).strip()


def _one_line(signature: type[dspy.Signature]) -> bool:
    outputs: list[Any] = list(signature.output_fields.values())
    return len(outputs) == 1 and outputs[0].annotation is str and bool(outputs[0].json_schema_extra.get(ONE_LINE_KEY))


def _stop(signature: type[dspy.Signature]) -> list[str]:
    if _one_line(signature):
        return ["\n"]
    outputs: list[Any] = list(signature.output_fields.values())
    return list(outputs[-1].json_schema_extra.get(STOP_KEY) or ())


def _has_output(signature: type[dspy.Signature], demo: Mapping[str, Any]) -> bool:
    return any(demo.get(name) is not None for name in signature.output_fields)


def _check_text(signature: type[dspy.Signature]) -> None:
    for name, field in signature.input_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, dspy.Type | dspy.History):
            raise InputError(
                f"`{name}` is a {kind.__name__}: signatures with a `{TRAJECTORY_FIELD}` take text through "
                "CompactAdapter; use one of DSPy's adapters for it"
            )
