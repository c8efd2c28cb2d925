"""From a record of a corpus, whatever its format, to a passage: which field is which, and what becomes metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core import CorpusError, InputError, Passage
from .faults import shown
from .values import json_value

KNOWN = {
    "id": ("id", "_id", "pid", "docid", "doc_id"),
    "title": ("title", "page", "name"),
    "text": ("text", "abstract", "contents", "sentences"),
}
"""The names by which a field is recognised; the first that a record has counts."""

_METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class Layout:
    """Which fields of a record are its id, title and text, and which others are kept.

    Attributes:
        fields: From ``id``, ``title`` and ``text`` to the source's names, for those that are not recognised.
        kept: The fields to keep as metadata; ``None`` for all.
    """

    fields: Mapping[str, str]
    kept: frozenset[str] | None

    @classmethod
    def of(cls, fields: Mapping[str, str] | None, metadata: Sequence[str] | None) -> Layout:
        """A layout from what a user gave.

        Raises:
            InputError: It is not a mapping of ``id``, ``title`` and ``text`` to names, or not a list of names.
        """
        if fields is not None and not isinstance(fields, Mapping):
            raise InputError(f"fields must map id, title or text to names of fields, got {fields!r:.80}")
        for role, name in (fields or {}).items():
            if role not in KNOWN:
                raise InputError(f"fields may name {', '.join(KNOWN)}, got {role!r:.80}")
            if not isinstance(name, str) or not name:
                raise InputError(f"fields[{role!r}] must be the name of a field, got {name!r:.80}")
        if metadata is None:
            return cls(dict(fields or {}), None)
        if isinstance(metadata, str | bytes) or not isinstance(metadata, Iterable):
            raise InputError(f"metadata must be a list of names of fields, got {metadata!r:.80}")
        names = list(metadata)
        if not all(isinstance(name, str) for name in names):
            raise InputError(f"metadata must be a list of names of fields, got {names!r:.80}")
        return cls(dict(fields or {}), frozenset(names))

    def names(self, role: str) -> tuple[str, ...]:
        """The names that a field can have."""
        if role in self.fields:
            return (self.fields[role],)
        return tuple(name for name in KNOWN[role] if name not in self.fields.values())

    def has_id(self, columns: Iterable[str]) -> bool:
        """Whether one of the columns is the id, or must be."""
        return "id" in self.fields or not set(self.names("id")).isdisjoint(columns)

    def wanted(self, columns: Iterable[str]) -> list[str]:
        """Those columns that are needed, so that others need not be read."""
        if self.kept is None:
            return list(columns)
        needed = self.kept.union({_METADATA}, *map(self.names, KNOWN))
        return [column for column in columns if column in needed]

    def check(self, columns: Sequence[str], where: str) -> None:
        """Refuse a table that lacks a column, or whose columns cannot be told apart.

        Raises:
            CorpusError: A column has no name or that of another, there is none with the text, or one that was asked
                for is missing.
        """
        for name, count in Counter(columns).items():
            if not name:
                place = list(columns).index("") + 1
                raise CorpusError(f"{where}: column {place} has no name; name or remove it (pandas: index=False)")
            if count > 1:
                raise CorpusError(f"{where}: {count} columns are called `{name:.80}`; give each its own name")
        for name in (*self.fields.values(), *sorted(self.kept or ())):
            if name not in columns and _other_separator(columns):
                raise CorpusError(f"{where}: {_other_separator(columns)}")
            if name not in columns and (name in self.fields.values() or _METADATA not in columns):
                raise CorpusError(f"{where}: no column `{name:.80}` among {_listed(columns)}; correct the name")
        if set(self.names("text")).isdisjoint(columns):
            raise CorpusError(f"{where}: {_other_separator(columns) or self._no_text(columns)}")

    def sought(self) -> set[str]:
        """The names to keep as metadata, without those that are an id, title or text."""
        return set(self.kept or ()).difference({_METADATA}, *map(self.names, KNOWN))

    def passage(self, record: Mapping[str, Any], where: str, number: int | None) -> Passage:
        """The passage that a record is.

        Args:
            record: The record, keys are strings.
            where: Its place, for messages.
            number: Its number, which is its id in a corpus without ids; ``None`` in one with ids.

        Raises:
            CorpusError: A field has the wrong type, there is no text, or two fields claim one name in the metadata.
        """
        found: dict[str, str] = {}
        used: set[str] = set()
        for role in KNOWN:
            names = self.names(role)
            used.update(name for name in names if record.get(name) is None)
            present = next((name for name in names if record.get(name) is not None), None)
            if present is not None:
                found[role] = present
                used.add(present)
        if number is None:
            if "id" in self.fields and self.fields["id"] not in record:
                raise CorpusError(f"{where}: {self._none('id', record)}")
            identifier = _identifier(record, found.get("id", self.names("id")[0]), where)
        elif "id" in found:
            raise CorpusError(f"{where}: has `{found['id']}`, and records before it have no id; give all an id or none")
        else:
            identifier = str(number)
        if "text" not in found and set(self.names("text")).isdisjoint(record):
            raise CorpusError(f"{where}: {self._no_text(record)}")
        title = record[found["title"]] if "title" in found else ""
        if not isinstance(title, str):
            kind = type(title).__name__
            raise CorpusError(f"{where}: `{found['title']}` must be a string, got {kind}; correct or remove it")
        text = _text(record[found["text"]], found["text"], where) if "text" in found else ""
        return Passage(identifier, title, text, metadata=self._metadata(record, used, where))

    def _none(self, role: str, columns: Iterable[str]) -> str:
        """That the field which was named for a role is not there."""
        known = f"no `{self.fields[role]:.80}` among the fields ({_listed(columns)})"
        return f"{known}; add it, or correct the name of the {role}"

    def _no_text(self, columns: Iterable[str]) -> str:
        if "text" in self.fields:
            return self._none("text", columns)
        known = f"no `text` among the fields ({_listed(columns)})"
        return f"{known}; add it, or say which field is the text: fields={{'text': NAME}}"

    def _metadata(self, record: Mapping[str, Any], used: set[str], where: str) -> dict[str, Any]:
        others = {name: value for name, value in record.items() if name not in used}
        nested = others.get(_METADATA)
        if nested is None:
            others.pop(_METADATA, None)
        elif isinstance(nested, Mapping):
            del others[_METADATA]
            twice = sorted(map(str, others.keys() & nested.keys()))
            if twice:
                raise CorpusError(f"{where}: `{twice[0]:.80}` is a field and is in `metadata` too; rename one of them")
            others |= nested
        kept: dict[str, Any] = {}
        for name, value in others.items():
            if self.kept is None or name in self.kept:
                try:
                    kept[name] = json_value(value)
                except (ValueError, OverflowError) as error:
                    raise CorpusError(
                        f"{where}: `{name!s:.80}` is {error}; convert it, or name the fields to keep as metadata"
                    ) from error
        return kept


def _identifier(record: Mapping[str, Any], name: str, where: str) -> str:
    value = record.get(name)
    try:
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return str(value)
    except ValueError as error:
        raise CorpusError(f"{where}: `{name}` is a number of too many digits; make it a string") from error
    raise CorpusError(f"{where}: `{name}` must be a non-empty string or an integer, got {shown(value, 80)}; add one")


def _text(value: Any, name: str, where: str) -> str:
    """The text, put together if it comes as sentences, or as paragraphs of sentences."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        paragraphs = [_joined(item) for item in value] if any(isinstance(item, list) for item in value) else []
        whole = "\n".join(filter(None, paragraphs)) if paragraphs and None not in paragraphs else _joined(value)
        if whole is not None:
            return whole
    kind = "a list that holds something else" if isinstance(value, list) else type(value).__name__
    raise CorpusError(f"{where}: `{name}` must be a string or a list of sentences, got {kind}; correct it")


def _joined(sentences: Any) -> str | None:
    """The sentences as one string, with a space between two that have none; ``None`` if they are not strings."""
    if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
        return None
    parts: list[str] = []
    for sentence in filter(None, sentences):
        if parts and not parts[-1][-1].isspace() and not sentence[0].isspace():
            parts.append(" ")
        parts.append(sentence)
    return "".join(parts)


def _listed(columns: Iterable[str]) -> str:
    names = ", ".join(f"{name!s:.40}" for name in columns)
    return " ".join((names if len(names) <= 300 else f"{names[:300]}...").split()) or "none"


def _other_separator(columns: Sequence[str]) -> str | None:
    """What to do about a row of names that is one name, since it was read with another separator than it has."""
    if len(columns) != 1:
        return None
    remedies = {
        "\t": "tabs, as in TSV; read it with format='tsv'",
        ";": "`;`; separate its cells by commas (spreadsheets ask for it when they export)",
        "|": "`|`; separate its cells by commas",
        ",": "commas, as in CSV; read it with format='csv'",
    }
    found = next((separator for separator in remedies if separator in columns[0]), None)
    return None if found is None else f"the names {columns[0]!r:.80} seem to be separated by {remedies[found]}"
