"""The tables of README.md, remade from the recorded files.

    python benchmarks/tables.py              # writes all tables into README.md
    python benchmarks/tables.py --check      # exits with 1 if one is not what the recorded files give
    python benchmarks/tables.py hotpot gate  # only these

A table is what one command prints, see ``COMMANDS``; it stands in README.md between ``<!-- table: NAME -->`` and
``<!-- /table -->``, under the command. All resampling is seeded, so the same files give the same table. Tables that
need gold labels, which are the data sets' own, are skipped with a message where the data folder is missing.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
from click.testing import CliRunner

from hopgate.core import write_atomic

HERE = Path(__file__).parent
DOCUMENT = HERE / "README.md"
DATA = HERE.parent.parent / "shared" / "data"

COMMANDS = {
    "hotpot": "hopgate compare --format markdown results/hotpot-dev-rag-40.jsonl results/hotpot-dev-direct-40.jsonl "
    "results/hotpot-dev-cot-40.jsonl results/hotpot-dev-active-40.jsonl results/hotpot-dev-always-40.jsonl "
    "results/hotpot-dev-ircot-40.jsonl results/hotpot-dev-escalated-40.jsonl results/hotpot-dev-react-40.jsonl "
    "results/hotpot-dev-react-plus-40.jsonl "
    "results/hotpot-dev-dr3-40.jsonl results/hotpot-dev-dr3-escalation-40.jsonl",
    "hotpot-ircot": "hopgate compare --format markdown results/hotpot-dev-ircot-40.jsonl "
    "results/hotpot-dev-always-40.jsonl results/hotpot-dev-escalated-40.jsonl "
    "results/hotpot-dev-dr3-escalation-40.jsonl",
    "off-topic": "offtopic_labels.py report results/hotpot-dev-rag-40.jsonl results/hotpot-dev-cot-40.jsonl "
    "results/hotpot-dev-direct-40.jsonl results/hotpot-dev-active-40.jsonl results/hotpot-dev-always-40.jsonl "
    "results/hotpot-dev-ircot-40.jsonl results/hotpot-dev-escalated-40.jsonl results/hotpot-dev-react-40.jsonl "
    "results/hotpot-dev-react-plus-40.jsonl "
    "results/hotpot-dev-dr3-40.jsonl results/hotpot-dev-dr3-escalation-40.jsonl --data DATA/hotpotqa-dev "
    "--labels results/offtopic-labels.jsonl --verdicts results/offtopic-verdicts.jsonl",
    "musique": "hopgate compare --format markdown results/musique-rag-20.jsonl results/musique-ircot-20.jsonl "
    "results/musique-always-20.jsonl results/musique-escalated-20.jsonl",
    "2wiki": "hopgate compare --format markdown results/2wiki-rag-20.jsonl results/2wiki-ircot-20.jsonl "
    "results/2wiki-always-20.jsonl results/2wiki-escalated-20.jsonl",
    "others": "hopgate compare --format markdown results/hotpot-dev-rag-40.jsonl results/hotpot-dev-static-15.jsonl "
    "results/hotpot-dev-fused-15.jsonl results/hotpot-dev-never-15.jsonl results/hotpot-dev-self-ask-15.jsonl "
    "results/hotpot-dev-flare-15.jsonl results/hotpot-dev-self-consistency-15.jsonl",
    "escalation": "trees.py transfer --train results/union-hotpot-train-rag.jsonl "
    "results/union-hotpot-train-escalated.jsonl --train results/union-musique-train-rag.jsonl "
    "results/union-musique-train-escalated.jsonl --test results/hotpot-dev-rag-40.jsonl "
    "results/hotpot-dev-escalated-40.jsonl",
    "active-budgets": "trees.py transfer --train-trees results/union-hotpot-train-active-trees.jsonl --train-trees "
    "results/union-musique-train-active-trees.jsonl --test-trees results/hotpot-dev-active-trees.jsonl",
    "curve-calls": "curve_calls.py count results/union-hotpot-train-active-trees.jsonl",
    "curve-check": "curve_calls.py check results/union-hotpot-train-active-trees.jsonl "
    "results/union-hotpot-train-active-uncached-10.jsonl",
    "policy": "policy.py train --train results/union-hotpot-train-escalation-trees.jsonl --test "
    "results/hotpot-final-escalation-trees.jsonl",
    "policy-active": "policy.py train --train results/union-hotpot-train-active-trees.jsonl --train "
    "results/union-musique-train-active-trees.jsonl --test results/hotpot-dev-active-trees.jsonl",
    "joint": "joint.py report results/joint.json",
    "final": "hopgate compare --format markdown results/hotpot-final-ircot-90.jsonl "
    "results/hotpot-final-rag-90.jsonl results/hotpot-final-always-90.jsonl "
    "results/hotpot-final-uncompiled-90.jsonl results/hotpot-final-chosen-90.jsonl",
    "final-always": "hopgate compare --format markdown results/hotpot-final-always-90.jsonl "
    "results/hotpot-final-uncompiled-90.jsonl results/hotpot-final-chosen-90.jsonl",
    "final-budgets": "trees.py transfer --train-trees results/union-hotpot-train-escalation-trees.jsonl --test-trees "
    "results/hotpot-final-escalation-trees.jsonl",
    "study": "study_kill.py report results/study-kill.jsonl",
    "hotpot-first": "hopgate compare --format markdown results/hotpot-dev-rag-40.jsonl "
    "results/hotpot-dev-active-40-first.jsonl results/hotpot-dev-always-40-first.jsonl "
    "results/hotpot-dev-escalated-40-first.jsonl results/hotpot-dev-react-40-first.jsonl",
    "escalation-first": "trees.py transfer --train results/union-hotpot-train-rag.jsonl "
    "results/union-hotpot-train-escalated-first.jsonl --train results/union-musique-train-rag.jsonl "
    "results/union-musique-train-escalated-first.jsonl --test results/hotpot-dev-rag-40.jsonl "
    "results/hotpot-dev-escalated-40-first.jsonl",
    "sample": "hopgate compare --format markdown results/sample-test-direct.jsonl results/sample-test-active.jsonl",
    "worlds": "sample_worlds.py results/sample-test-active.jsonl --labels results/sample-test-memory-labels.json",
    "gate": "gate.py report results/musique-drafts.jsonl",
    "tau-musique": "gate.py fit results/musique-drafts.jsonl",
    "tau-sample": "gate.py fit results/sample-train-drafts.jsonl",
    "discriminator": "discriminator.py report results/discriminator.jsonl",
    "adapters": "hopgate compare --format markdown results/hotpot-dev-rag-compact.jsonl "
    "results/hotpot-dev-rag-chat.jsonl",
    "adapter-tokens": "adapters.py report results/adapter-tokens.jsonl",
    "prefix-cache": "prefix_cache.py report results/hotpot-dev-prefix-cache.jsonl",
    "startup": "startup.py report results/startup.jsonl",
    "runner": "runner.py report results/runner.jsonl",
    "recall": "index_recall.py report results/index-rankings.jsonl DATA/hotpotqa-dev DATA/musique-train",
    "rerank": "index_rerank.py report results/index-rerank.jsonl DATA/musique-train",
    "build": "index_build.py report results/index-build.jsonl",
    "pylate": "index_build.py report results/index-search-pylate.jsonl",
    "growth": "index_growth.py report results/index-growth.jsonl",
    "kill": "index_kill.py report results/index-kill.jsonl",
}
"""What prints each table, to be called in this folder. DATA stands for the folder of the data sets."""

_BLOCK = re.compile(r"<!-- table: (?P<name>[\w-]+) -->\n.*?<!-- /table -->", re.DOTALL)


class NoData(Exception):
    """A table needs labels of a data set that is not on this machine."""


def make(name: str, data: Path) -> str:
    """The table in Markdown, under its command.

    Args:
        name: Which one of ``COMMANDS``.
        data: The folder of the data sets.

    Raises:
        NoData: It needs a data set that is not in the folder.
        ClickException: There is no such table, or its command fails.
    """
    if name not in COMMANDS:
        raise click.ClickException(f"no table is called {name!r}; there are {', '.join(COMMANDS)}")
    command = COMMANDS[name]
    program, *words = shlex.split(command)
    for folder in re.findall(r"\bDATA/(\S+)", command):
        if not (data / folder / "questions.jsonl").exists():
            raise NoData(f"{name}: skipped, since it needs the labels of {folder}; name their folder with --data")
    arguments = [re.sub(r"^DATA(?=/)", str(data), re.sub(r"^(?=results/)", f"{HERE}/", word)) for word in words]
    result = CliRunner().invoke(_command(program), arguments, catch_exceptions=False, prog_name=program)
    # Exit code 1 says that a figure misses its bound. That is for its own script to say: the table shows it.
    if result.exit_code not in (0, 1) or not result.stdout.strip():
        raise click.ClickException(f"{name}: `{command}` failed: {result.output.strip()}")
    return f"`{command}`\n\n{result.stdout.strip()}"


def _command(program: str) -> click.Command:
    if program == "hopgate":
        from hopgate.cli import main as hopgate

        return hopgate
    sys.path.insert(0, str(HERE))
    try:
        return import_module(Path(program).stem).main
    finally:
        sys.path.remove(str(HERE))


def published(text: str) -> Iterator[tuple[str, str]]:
    """Name and whole block of each table in a document.

    Raises:
        ClickException: A table is there twice, or its end is missing.
    """
    found = [(block["name"], block[0]) for block in _BLOCK.finditer(text)]
    names = [name for name, _ in found]
    if len(set(names)) < len(names) or text.count("<!-- table:") != len(found):
        raise click.ClickException(f"{DOCUMENT.name}: a table is there twice, or its <!-- /table --> is missing")
    yield from found


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a table differs.")
@click.option("--data", type=click.Path(path_type=Path), default=DATA, help="Folder of the data sets.")
@click.option("--document", type=click.Path(path_type=Path, exists=True), default=DOCUMENT, help="Where they stand.")
def main(names: tuple[str, ...], check: bool, data: Path, document: Path) -> None:
    """See the module's description."""
    text = document.read_text(encoding="utf-8")
    blocks = dict(published(text))
    lost = [name for name in names if name not in blocks]
    if lost:
        raise click.ClickException(f"{document}: has no <!-- table: {lost[0]} -->; it has {', '.join(blocks)}")
    different = 0
    for name in names or blocks:
        try:
            block = f"<!-- table: {name} -->\n{make(name, data)}\n<!-- /table -->"
        except NoData as error:
            click.echo(error, err=True)
            continue
        if block != blocks[name]:
            different += 1
            click.echo(f"{name}: {'differs from the recorded files' if check else 'written'}", err=True)
            text = text.replace(blocks[name], block)
    if check and different:
        raise click.ClickException(f"{document}: run `python benchmarks/tables.py` and look at what changes")
    if not check:
        write_atomic(document, text.encode())


if __name__ == "__main__":
    main()
