"""From a record of a data set, in the form in which its authors or the Hugging Face hub publish it, to a question.

The form is told by the fields:

- HotpotQA (Yang et al. 2018) and 2WikiMultiHopQA (Ho et al. 2020): ``_id`` or ``id``, ``question``, ``answer``,
  ``type``, ``supporting_facts``, ``context``, and in 2WikiMultiHopQA ``evidences``;
- MuSiQue (Trivedi et al. 2022): ``id``, ``question``, ``answer``, ``answer_aliases``, ``answerable``,
  ``question_decomposition``, ``paragraphs``;
- Bamboogle (Press et al. 2023): ``Question``, ``Answer``;
- the simple form: ``id``, ``question``, ``answers`` (a list, or one string; or ``answer``), and where they are known
  ``type``, ``hops``, ``supporting_ids``, ``supporting_titles``, ``decomposition`` (objects with ``question``,
  ``answer`` and maybe ``support_id``), ``answerable``, ``contexts`` (passages). Without ``hops``, they are the number
  of supporting passages, or else of steps. In a CSV file, lists are JSON: ``["Rome", "Roma"]`` in the column
  ``answers`` are two answers, and ``Rome; Roma`` is one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..core import InputError, Passage
from .questions import Question, Step, content_id

Record = Mapping[str, Any]
Parser = Callable[[Record, int], Question]
"""Makes a question of a record and of its number, counted from 1."""


def parser_of(record: Record) -> Parser:
    """What reads records with these fields.

    Raises:
        InputError: They are of no known form.
    """
    if {"question_decomposition", "paragraphs", "answer_aliases"} & record.keys():
        return _musique
    if "supporting_facts" in record or "context" in record:
        return _hotpotqa
    if {"Question", "Answer"} <= record.keys():
        return _bamboogle
    if "question" in record and {"answers", "answer"} & record.keys():
        return _simple
    found = ", ".join(f"{name!s:.40}" for name in record)[:200] or "none"
    raise InputError(
        f"has the fields {found}, and those of no known data set; the simple form is "
        '{"id": ..., "question": ..., "answers": [...]}'
    )


def _hotpotqa(record: Record, _number: int) -> Question:
    contexts = tuple(_context(entry) for entry in _entries(record, "context", ("title", "sentences")))
    titles = tuple(dict.fromkeys(_title(entry) for entry in _entries(record, "supporting_facts", ("title", "sent_id"))))
    by_title: dict[str, str] = {}
    for passage in contexts:
        by_title.setdefault(passage.title, passage.id)
    whole = all(title in by_title for title in titles)
    return Question(
        id=_id(record, "_id" if "_id" in record else "id"),
        question=_text(record, "question"),
        answers=_answers(record),
        type=_optional_text(record, "type"),
        hops=len(titles) or None,
        supporting_ids=tuple(by_title[title] for title in titles) if whole else (),
        supporting_titles=titles,
        decomposition=tuple(_evidence(entry, by_title) for entry in _entries(record, "evidences", None)),
        contexts=contexts,
    )


def _context(entry: list[Any]) -> Passage:
    title, sentences = _title(entry), entry[1] if len(entry) > 1 else None
    if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
        raise InputError(f"`context` must hold titles with lists of sentences, got {sentences!r:.80}")
    text = ""
    for sentence in sentences:
        # The sentences of HotpotQA begin with the space between them, those of 2WikiMultiHopQA do not.
        text += sentence if not text or text[-1:].isspace() or sentence[:1].isspace() else f" {sentence}"
    return Passage(content_id(title, text), title, text)


def _title(entry: list[Any]) -> str:
    if not entry or not isinstance(entry[0], str):
        raise InputError(f"`context` and `supporting_facts` must hold titles, got {entry!r:.80}")
    return entry[0]


def _evidence(entry: list[Any], by_title: Mapping[str, str]) -> Step:
    if len(entry) != 3 or not all(isinstance(part, str) for part in entry):
        raise InputError(f"`evidences` must hold a subject, a relation and an object each, got {entry!r:.80}")
    subject, relation, found = entry
    return Step(f"{subject} >> {relation}", found, by_title.get(subject))


def _musique(record: Record, _number: int) -> Question:
    contexts: list[Passage] = []
    supporting: list[Passage] = []
    by_number: dict[Any, str] = {}
    for paragraph in _objects(record, "paragraphs"):
        title, text = _text(paragraph, "title", empty=True), _text(paragraph, "paragraph_text", empty=True)
        passage = Passage(content_id(title, text), title, text)
        contexts.append(passage)
        by_number[paragraph.get("idx")] = passage.id
        if paragraph.get("is_supporting"):
            supporting.append(passage)
    steps = tuple(
        Step(_text(step, "question"), _text(step, "answer", empty=True), by_number.get(_number_of(step)))
        for step in _objects(record, "question_decomposition")
    )
    # In hop order, which the paragraphs are not in.
    in_order = [step.support_id for step in steps if step.support_id is not None]
    ids = dict.fromkeys([*in_order, *(passage.id for passage in supporting)])
    titles = {passage.id: passage.title for passage in contexts}
    answerable = record.get("answerable", True)
    if not isinstance(answerable, bool):
        raise InputError(f"`answerable` must be true or false, got {answerable!r:.80}")
    return Question(
        id=_id(record, "id"),
        question=_text(record, "question"),
        answers=_answers(record, "answer_aliases"),
        type=_musique_type(record),
        hops=len(steps) or _musique_hops(record),
        supporting_ids=tuple(ids),
        supporting_titles=tuple(dict.fromkeys(titles[key] for key in ids)),
        decomposition=steps,
        answerable=answerable,
        contexts=tuple({passage.id: passage for passage in contexts}.values()),
    )


def _number_of(step: Record) -> Any:
    # The hub's tables hold whole numbers as such or as floats, where one of them is missing.
    value = step.get("paragraph_support_idx")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _musique_type(record: Record) -> str | None:
    """The shape of the question, which stands before its id: ``2hop``, ``3hop1``, ``4hop3``."""
    match = re.match(r"(\dhop\d?)_", str(record.get("id")))
    return match[1] if match else None


def _musique_hops(record: Record) -> int | None:
    shape = _musique_type(record)
    return int(shape[0]) if shape else None


def _bamboogle(record: Record, number: int) -> Question:
    answers = (_text(record, "Answer").strip(),)
    # All of them are made of two facts.
    return Question(f"bamboogle_{number}", _text(record, "Question").strip(), answers, hops=2)


def _simple(record: Record, _number: int) -> Question:
    hops = record.get("hops")
    if isinstance(hops, str):
        hops = int(hops) if hops.strip().isdecimal() else hops or None
    if hops is not None and (not isinstance(hops, int) or isinstance(hops, bool) or hops < 1):
        raise InputError(f"`hops` must be a positive whole number, got {hops!r:.80}")
    steps = _objects(record, "decomposition")
    ids, titles = _texts(record, "supporting_ids"), _texts(record, "supporting_titles")
    answerable = record.get("answerable")
    answerable = {"": True, None: True, "true": True, "false": False}.get(
        answerable.strip().lower() if isinstance(answerable, str) else answerable, answerable
    )
    if not isinstance(answerable, bool):
        raise InputError(f"`answerable` must be true or false, got {answerable!r:.80}")
    return Question(
        id=_id(record, "id"),
        question=_text(record, "question"),
        answers=_answers(record, "answer_aliases"),
        type=_optional_text(record, "type"),
        hops=hops or len(ids) or len(titles) or len(steps) or None,
        supporting_ids=ids,
        supporting_titles=titles,
        decomposition=tuple(
            Step(_text(step, "question"), _text(step, "answer", empty=True), _optional_text(step, "support_id"))
            for step in steps
        ),
        answerable=answerable,
        contexts=tuple(Passage.from_dict(passage) for passage in _objects(record, "contexts")),
    )


# --- fields -----------------------------------------------------------------------------------------------------------


def _text(record: Record, field: str, *, empty: bool = False) -> str:
    value = record.get(field)
    if not isinstance(value, str) or not (value.strip() or empty):
        raise InputError(f"`{field}` must be a string{'' if empty else ' that is not empty'}, got {value!r:.80}")
    return value


def _optional_text(record: Record, field: str) -> str | None:
    return None if record.get(field) in (None, "") else _text(record, field)


def _id(record: Record, field: str) -> str:
    value = record.get(field)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(record, field)


def _answers(record: Record, aliases: str | None = None) -> tuple[str, ...]:
    """The gold answer and its aliases, each once."""
    field = "answers" if record.get("answers") is not None else "answer"
    value = record.get(field)
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = _bracketed(value, field)
    listed: list[Any] = value if isinstance(value, list) else [value]
    numbers = [item for item in listed if isinstance(item, int | float) and not isinstance(item, bool)]
    if numbers:
        quoted = json.dumps([item if isinstance(item, str) else json.dumps(item) for item in listed])
        raise InputError(f"`{field}` must be text, got the number {numbers[0]!r:.80}; quote numbers: {quoted:.80}")
    if not listed or not all(isinstance(item, str) and item.strip() for item in listed):
        absent = value is None or value == [] or (isinstance(value, str) and not value.strip())
        remedy = "; test splits without public answers cannot be scored: take the validation split" if absent else ""
        raise InputError(
            f"`{field}` must be a string or a list of strings, none of them empty, got {value!r:.80}{remedy}"
        )
    return tuple(dict.fromkeys([*listed, *(_texts(record, aliases) if aliases else ())]))


def _bracketed(value: str, field: str) -> Any:
    """The answers in a cell of a table, which are JSON if there are several."""
    try:
        listed = json.loads(value)
    except (ValueError, RecursionError) as error:
        if field == "answer":
            return value
        raise InputError(
            f"`{field}` begins with a bracket and is not JSON, got {value!r:.80}; write several answers as "
            'a JSON list, ["Rome", "Roma"], quoted as a CSV cell'
        ) from error
    if field == "answer":
        if listed and all(isinstance(item, str) for item in listed):
            raise InputError(f"`answer` is one answer and holds a list, {value!r:.80}; call the field `answers`")
        return value
    return listed


def _texts(record: Record, field: str) -> tuple[str, ...]:
    values = _listed(record, field)
    strings: list[str] = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise InputError(f"`{field}` must be a list of strings, none of them empty, got {values!r:.80}")
        strings.append(str(value))
    return tuple(strings)


def _objects(record: Record, field: str) -> list[Record]:
    value = record.get(field)
    # The hub's tables may hold an object of lists where the authors' files hold a list of objects.
    values = _transposed(value) if isinstance(value, Mapping) else _listed(record, field)
    if not all(isinstance(item, Mapping) for item in values):
        raise InputError(f"`{field}` must be a list of objects, got {values!r:.80}")
    return values


def _transposed(value: Mapping[str, Any]) -> list[Record]:
    columns = [list(column) for column in value.values()]
    return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=False)]


def _entries(record: Record, field: str, names: tuple[str, str] | None) -> list[list[Any]]:
    """Lists of parts, or on the hub an object of two lists with these names."""
    value = record.get(field)
    if isinstance(value, str) and value:
        value = _json(value, field)
    if isinstance(value, Mapping) and names is not None:
        first, second = (value.get(name) for name in names)
        if not isinstance(first, list) or not isinstance(second, list) or len(first) != len(second):
            raise InputError(f"`{field}` must have the lists `{names[0]}` and `{names[1]}`, of one length")
        return [list(pair) for pair in zip(first, second, strict=True)]
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(entry, list) for entry in value):
        raise InputError(f"`{field}` must be a list of lists, got {value!r:.80}")
    return value


def _listed(record: Record, field: str) -> list[Any]:
    value = record.get(field)
    if isinstance(value, str) and value.strip():
        value = _json(value, field)
    if value is None or value == "":
        return []
    if not isinstance(value, list):
        raise InputError(f"`{field}` must be a list, got {value!r:.80}")
    return value


def _json(value: str, field: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise InputError(f"`{field}` must be a list, as JSON where it is text, got {value!r:.80}") from error
