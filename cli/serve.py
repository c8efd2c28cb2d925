"""``hopgate index serve``: an index for other programs and machines."""

from __future__ import annotations

from pathlib import Path

import click

from .terminal import note


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; others need a token.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8893, show_default=True, help="Port; 0 for any free one."
)
@click.option("--checkpoint", metavar="DIR", help="The index's checkpoint, if it was made with a local folder.")
@click.option("--token-file", metavar="FILE", type=click.Path(path_type=Path), help="File that holds the token.")
@click.option("--max-k", type=click.IntRange(min=1), default=1000, show_default=True, help="Passages for one query.")
@click.option(
    "--searches", type=click.IntRange(1, 256), default=4, show_default=True, help="Requests worked on at once."
)
def serve(
    folder: str, host: str, port: int, checkpoint: str | None, token_file: Path | None, max_k: int, searches: int
) -> None:
    """Serve the index DIR over HTTP, until Ctrl+C.

    dspy.ColBERTv2 and RemoteIndex can search it, given the address that is shown; /openapi.json describes the rest.
    A token, from FILE or from the environment variable HOPGATE_TOKEN, is then needed in each request: Authorization:
    Bearer TOKEN.
    """
    from ..core.texts import counted
    from ..index import ColBERTIndex
    from ..index.bearer import token_of_environment, token_of_file
    from ..index.limits import ServerLimits
    from ..index.server import IndexServer, require_server_packages

    require_server_packages()
    token = token_of_environment() if token_file is None else token_of_file(token_file)
    index = ColBERTIndex.open(folder, checkpoint=checkpoint)
    limits = ServerLimits(k=max_k, results=max(max_k, ServerLimits.results), searches=searches)
    server = IndexServer(index, host=host, port=port, token=token, limits=limits)
    try:
        # Loads the encoder: clients do not wait for long.
        index.search("warming up", k=1)
        server.run(lambda: note(f"Serving {folder} ({counted(len(index), 'passage')}) on {server.url}; Ctrl+C stops."))
    finally:
        server.stop()
