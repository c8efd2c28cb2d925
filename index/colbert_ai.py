"""Loading colbert-ai: its C++ extensions, and undoing what importing it changes."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from ..core import MissingDependencyError
from .captured import captured_output

_ABANDONED = 180.0
"""Seconds after which a compilation that has written nothing is taken for one that was killed."""

_loading = threading.Lock()
_loaded = False


def load_extensions() -> None:
    """Import colbert-ai and load the four C++ extensions of its search, compiled on first use (some minutes).

    Raises:
        MissingDependencyError: colbert-ai or a C++ compiler is missing, or compiling failed.
    """
    global _loaded
    with _loading:
        if not _loaded:
            _load()
            _loaded = True


def _load() -> None:
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        raise MissingDependencyError(
            f"PLAID needs a C++ compiler and there is no {compiler!r}; install one (g++) or use engine='exact'"
        )
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


def _clear_abandoned() -> None:
    """Wait for compilations of other processes, and remove torch's locks of those that were killed.

    The lock is a file that only the end of the compilation removes, and torch waits for that for ever. A compilation
    that is under way writes now and then.
    """
    from torch.utils.cpp_extension import get_default_build_root

    for lock in Path(get_default_build_root()).glob("*/*_cpp/lock"):
        with suppress(OSError):  # gone meanwhile
            while time.time() - max(path.stat().st_mtime for path in (lock, *lock.parent.iterdir())) < _ABANDONED:
                time.sleep(0.2)
            lock.unlink()
