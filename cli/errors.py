"""What a failed command prints and returns: one line on stderr and exit code 2, or 130 if it was interrupted."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import click

from .option_names import asked_command, with_options
from .terminal import INTERRUPTED

_FAILED = 2
_LONGEST = 1000
"""Characters of a message; some LM backends send whole pages."""
_ASKED = f"{__name__}.asked"
_BUILD = ("index", "build")
"""Whose options messages of other commands may name: an index that cannot be opened is to be built otherwise."""


class Program(click.Group):
    """The top-level group: turns errors into exit codes.

    Errors that a user can do something about (all of hopgate's own, those of files and of LM backends, and wrong
    arguments) become one line. Anything else is a bug and keeps its traceback.
    """

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """See ``click.Group.main``; as a program it ends the process."""
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)
        _prepare()
        try:
            code = super().main(*args, standalone_mode=False, **extra)
        except click.ClickException as error:
            _say(f"Error: {_usage(error)}")
            code = _FAILED
        except click.Abort:
            _say("Interrupted.")
            code = INTERRUPTED
        sys.exit(code)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See ``click.Group.parse_args``."""
        ctx.meta[_ASKED] = asked_command(self, args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """See ``click.Group.invoke``."""
        try:
            outcome = super().invoke(ctx)
            sys.stdout.flush()
            return outcome
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except KeyboardInterrupt:
            _say("Interrupted.")
            raise click.exceptions.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _close_pipe()
        except Exception as error:
            message = explain(error)
            if message is None:
                raise
            if ctx.params.get("debug"):
                import traceback

                traceback.print_exc()
            message = with_options(message, ctx.meta[_ASKED], asked_command(self, _BUILD))
            _say(f"Error: {message}")
            raise click.exceptions.Exit(_FAILED) from None


def explain(error: BaseException) -> str | None:
    """One line about an error that a user can do something about; ``None`` for any other.

    Args:
        error: What was raised.
    """
    from ..core import HopgateError

    # DSPy wraps what an engine raises: the reason lies below.
    for cause in _chain(error):
        if isinstance(cause, HopgateError):
            return _one_line(str(cause))
    # What was never imported cannot have raised anything.
    dspy: Any = sys.modules.get("dspy")
    if dspy is not None and isinstance(error, dspy.LMError):
        # What follows the first line is advice for programmers.
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        if isinstance(error, dspy.LMTransportError):
            said += "; start the LM's server, or connect to the network"
        return _one_line(said)
    if isinstance(error, OSError):
        reason = error.strerror or str(error) or type(error).__name__
        return _one_line(f"{error.filename}: {reason}" if error.filename else reason)
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    hint = f" (see `{context.command_path} --help`)" if context is not None else ""
    return _one_line(error.format_message()).removesuffix(".") + hint


def _one_line(message: str) -> str:
    text = "".join(character if character.isprintable() else " " for character in message)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _say(line: str) -> None:
    click.echo(line, err=True)


def _prepare() -> None:
    # Model names and prices are not worth a look into the network at each start, nor its warnings.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_LOG", "ERROR")
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets a question mark, not a traceback.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _close_pipe() -> NoReturn:
    # The reader has had enough (`| head`): nothing is wrong, and nothing more may be written at exit.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise click.exceptions.Exit(1) from None
