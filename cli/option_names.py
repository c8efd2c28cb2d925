"""Errors name arguments as the library has them, ``engine='exact'``; on the command line they are options.

Said in one place, so that no error needs two wordings.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

import click

_OTHER_NAMES = {"replace": "force"}
"""Arguments of the library whose option has another name."""

_VALUE = r"'[^']*'|\"[^\"]*\"|[A-Z]+\b|True|False|-?\d[\d.]*"


def asked_command(group: click.Command, words: Sequence[str]) -> click.Command:
    """The command that words name, within a group and the groups that it holds."""
    command = group
    for word in words:
        if not isinstance(command, click.Group):
            break
        command = command.commands.get(word, command)
    return command


def with_options(message: str, *commands: click.Command) -> str:
    """A message of the library with options in the place of arguments.

    Args:
        message: The message: ``"use engine='exact'"``.
        commands: The command that failed, and others that messages may speak of.

    Returns:
        The message for users of the command line: ``"use --engine exact"``.
    """
    for command in reversed(commands):
        options = {_argument(option): option for option in _options(command)}
        options |= {name: options[other] for name, other in _OTHER_NAMES.items() if other in options}
        if {"id_field", "title_field", "text_field"} <= options.keys():
            message = re.sub(r"\bfields=\{'(id|title|text)': (\w+)\}", r"--\1-field \2", message)
            message = re.sub(r"\bfields\['(id|title|text)'\]", r"--\1-field", message)
        for name, option in options.items():
            message = _replaced(message, name, option)
    return message


def _replaced(message: str, name: str, option: click.Option) -> str:
    def valued(match: re.Match[str]) -> str:
        value = match[1]
        if option.is_flag and value in ("True", "False"):
            return _shown(option) if value == "True" else next(iter(option.secondary_opts), match[0])
        quoted = value[0] in ("'", '"')
        return f"{_shown(option)} {shlex.quote(value[1:-1]) if quoted else value}"

    alone = rf"(?<![\w./`'\"\[-]){name}"
    message = re.sub(rf"{alone}=({_VALUE})", valued, message)
    message = re.sub(rf"\bas `{name}`", f"with {_shown(option)}", message)
    # Words of one part may be meant as words, or be names of fields.
    if "_" in name:
        return re.sub(rf"{alone}(?![\w./`'\"=\]-])", _shown(option), message)
    return re.sub(rf"^{name}(?= (?:must be|is for|needs) )", _shown(option), message)


def _options(command: click.Command) -> Iterator[click.Option]:
    return (option for option in command.params if isinstance(option, click.Option))


def _shown(option: click.Option) -> str:
    return max(option.opts, key=len)


def _argument(option: click.Option) -> str:
    return _shown(option).lstrip("-").replace("-", "_")
