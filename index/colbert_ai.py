"""Loading colbert-ai: its C++ extensions, and undoing what importing it changes."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..core import MissingDependencyError
from .captured import captured_output

_ABANDONED = 180.0
"""Seconds after which a compilation that has written nothing is taken for one that was killed."""

_EXTENSIONS = ("decompress_residuals_cpp", "filter_pids_cpp", "segmented_lookup_cpp", "segmented_maxsim_cpp")

_log = logging.getLogger(__name__)
_loading = threading.Lock()
_loaded = False


def check_compiler() -> None:
    """Raise MissingDependencyError without a C++ compiler, which torch asks for even where all is compiled."""
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        raise MissingDependencyError(
            f"PLAID needs a C++ compiler and there is no {compiler!r}; install one (g++) or use engine='exact'"
        )


def load_extensions() -> None:
    """Import colbert-ai and load the four C++ extensions of its search, compiled on first use (some minutes).

    That they are compiled is told as a warning of this module's logger, since nothing else moves meanwhile.

    Raises:
        MissingDependencyError: colbert-ai or a C++ compiler is missing, or compiling failed.
    """
    global _loaded
    with _loading:
        if not _loaded:
            _load()
            _loaded = True


def _load() -> None:
    check_compiler()
    if not _are_compiled():
        _log.warning("compiling colbert-ai's C++ extensions for PLAID, which takes some minutes; once on this machine")
    start_method, parallelism = (
        multiprocessing.get_start_method(allow_none=True),
        os.environ.get("TOKENIZERS_PARALLELISM"),
    )
    path = os.environ.get("PATH", "")
    with captured_output() as last_line:
        try:
            # torch looks for ninja on the path, where a virtual environment that is not activated is not.
            os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{path}"
            from colbert.modeling.colbert import ColBERT
            from colbert.search.index_storage import IndexScorer
            from colbert.search.strided_tensor import StridedTensor

            _clear_abandoned()
            ColBERT.try_load_torch_extensions(False)
            IndexScorer.try_load_torch_extensions(False)
            StridedTensor.try_load_torch_extensions(False)
        except ImportError as error:
            raise MissingDependencyError(f"PLAID needs colbert-ai ({error}); run `pip install colbert-ai`") from error
        except (RuntimeError, OSError) as error:
            reason = str(error).strip().split("\n")[0] or last_line()
            raise MissingDependencyError(
                f"colbert-ai's C++ extensions do not compile ({reason}); repair the compiler or use engine='exact'"
            ) from error
        finally:
            os.environ["PATH"] = path
            # Importing colbert-ai sets these for the whole process.
            multiprocessing.set_start_method(start_method, force=True)
            if parallelism is None:
                os.environ.pop("TOKENIZERS_PARALLELISM", None)
            else:
                os.environ["TOKENIZERS_PARALLELISM"] = parallelism


def _build_folders() -> Iterator[Path]:
    """Where torch compiles colbert-ai's extensions, each in a folder of its own; those that were begun."""
    from torch.utils.cpp_extension import get_default_build_root

    chosen = os.environ.get("TORCH_EXTENSIONS_DIR")
    root, pattern = (Path(chosen), "*_cpp") if chosen else (Path(get_default_build_root()), "*/*_cpp")
    return root.glob(pattern)


def _are_compiled() -> bool:
    names = {library.parent.name for folder in _build_folders() for library in folder.glob("*.so")}
    return names >= set(_EXTENSIONS)


def _clear_abandoned() -> None:
    """Wait for compilations of other processes, and remove torch's locks of those that were killed.

    The lock is a file that only the end of the compilation removes, and torch waits for that for ever. A compilation
    that is under way writes now and then.
    """
    for lock in [folder / "lock" for folder in _build_folders()]:
        with suppress(OSError):  # gone meanwhile
            while time.time() - max(path.stat().st_mtime for path in (lock, *lock.parent.iterdir())) < _ABANDONED:
                time.sleep(0.2)
            lock.unlink()
