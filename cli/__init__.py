"""The ``hopgate`` command: argument parsing and printing, nothing else.

Everything heavy is imported inside the commands, so that ``hopgate --help`` answers at once.
"""

from __future__ import annotations

import click

from .ablate import ablate
from .ask import ask
from .compare import compare
from .compile import compile_command
from .diagnose import diagnose
from .errors import Program
from .evaluate import evaluate
from .index import index
from .lm import lm
from .report import report
from .score import score

__all__ = ["main"]


@click.group(
    "hopgate", cls=Program, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="hopgate", prog_name="hopgate")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def main(context: click.Context, debug: bool) -> None:
    """Answer multi-hop questions, searching only when the language model does not already know."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (ablate, ask, compare, compile_command, diagnose, evaluate, index, lm, report, score):
    main.add_command(_command)
