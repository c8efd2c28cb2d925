"""Weights from the model hub, by ``huggingface_hub``, which is imported only when it is needed."""

from __future__ import annotations

from pathlib import Path

from .errors import WeightsError
from .known_weights import WeightFile
from .progress import OnProgress, reporting


def hub_answers(timeout: float = 5.0) -> bool:
    """Whether the model hub can be reached, told within a few seconds.

    Args:
        timeout: Seconds for the connection and for the answer.
    """
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        return get_session().head(constants.ENDPOINT, timeout=timeout).status_code < 500
    except (OSError, ValueError):
        return False


def fetch_from_hub(repo: str, files: list[WeightFile], staging: Path, on_progress: OnProgress | None) -> None:
    """Download files of a repository into the staging folder; the caller checks them.

    Args:
        repo: Name of the repository on the hub.
        files: The files to download.
        staging: Where to put them; an interrupted download is continued.
        on_progress: Called with the bytes downloaded and the bytes to download.

    Raises:
        WeightsError: The hub cannot be reached, or does not give a file.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    # Its own retries take half a minute and log each failure; a machine without a hub is told at once.
    if not hub_answers():
        raise WeightsError(f"the model hub cannot be reached for {repo}")
    quiet = are_progress_bars_disabled()
    disable_progress_bars()
    total, done = sum(file.size for file in files), 0
    try:
        for file in files:
            # A folder for each file, so that its growth is this download's progress.
            folder = staging / "hub" / file.name
            folder.mkdir(parents=True, exist_ok=True)
            with reporting(folder, done, file.size, total, on_progress):
                # hf_xet raises plain RuntimeErrors when a transfer breaks.
                try:
                    path = hf_hub_download(repo, file.name, local_dir=folder)
                except (OSError, ValueError, RuntimeError) as error:
                    reason = " ".join(str(error).split())[:200] or type(error).__name__
                    raise WeightsError(f"cannot download {file.name} of {repo} from the model hub: {reason}") from error
            Path(path).replace(staging / file.name)
            done += file.size
    finally:
        if not quiet:
            enable_progress_bars()
