"""Reading and writing: consoles, notes, JSON, text arguments."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130
"""Exit code of a command that was interrupted."""
_LONGEST_INPUT = 1 << 20
"""Bytes read from standard input; longer than any question may be."""
_PLAIN_WIDTH = 1_000_000
"""Characters of a line where nobody looks, so that no table is wrapped; the width that COLUMNS asks for is taken."""


def make_console(*, stderr: bool = False) -> Console:
    """A console for text that was not written for rich: no markup, no highlighting.

    Lines and tables are wrapped for terminals only; files and pipes get them whole.

    Args:
        stderr: Whether it writes to stderr.
    """
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else _PLAIN_WIDTH
    return Console(file=stream, width=width, soft_wrap=not stream.isatty(), markup=False, highlight=False, emoji=False)


def note(text: str) -> None:
    """Write a line to stderr."""
    click.echo(text, err=True)


@contextmanager
def goes_on(what: str, state: Callable[[], tuple[int, int] | None]) -> Iterator[None]:
    """Say at Ctrl-C how far resumable work is, and end with exit code 130.

    Args:
        what: What is counted: ``questions``.
        state: How many are done, and of how many; ``None`` if that is not known yet.
    """
    try:
        yield
    except KeyboardInterrupt:
        found = state()
        told = f"{found[0]:,} of {found[1]:,} {what} are done" if found else "nothing was done in this call"
        note(f"Interrupted: {told}; what is done is kept, and the same command goes on from there.")
        raise click.exceptions.Exit(INTERRUPTED) from None


def write_json(record: Any) -> None:
    """Write one JSON value to stdout, on one line of ASCII."""
    click.echo(json.dumps(record, allow_nan=False))


def plain(text: str) -> str:
    """A text on one line and without control characters, which could move a terminal's cursor."""
    spaced = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(spaced.split())


def beginning(text: str, characters: int = 160) -> str:
    """The start of a text, on one line."""
    line = plain(text)
    return line if len(line) <= characters else f"{line[:characters].rstrip()}..."


def text_argument(value: str, what: str) -> str:
    """A text given as an argument, or on standard input if the argument is ``-``.

    Args:
        value: The argument.
        what: What it is, for messages: ``question``.

    Raises:
        InputError: It is empty, or not UTF-8.
    """
    from ..core import InputError

    data = sys.stdin.buffer.read(_LONGEST_INPUT) if value == "-" else os.fsencode(value)
    try:
        text = data.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise InputError(f"the {what} is not UTF-8 text (byte {error.start})") from error
    if not text:
        raise InputError(f"the {what} is empty")
    return text


def size(count: int) -> str:
    """A number of bytes for people: ``1.12 GB``."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} bytes"
