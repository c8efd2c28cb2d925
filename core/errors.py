"""The one exception family of hopgate.

Everything that hopgate raises on purpose derives from :class:`HopgateError`, so that a caller can tell a mistake in
the input, or a missing file, from a bug. The command line prints the message of these errors and exits with code 2.
A message names the file, line or field at fault and says what to do about it.
"""

from __future__ import annotations


class HopgateError(Exception):
    """Base of all errors that hopgate raises on purpose."""


class InputError(HopgateError):
    """A question, argument or option has a value that cannot be used."""


class CorpusError(HopgateError):
    """A corpus file is missing, empty or holds a record that is not a passage."""


class CheckpointError(HopgateError):
    """A ColBERT checkpoint is missing, incomplete or not safe to load."""


class IndexStoreError(HopgateError):
    """An index folder is missing, incomplete, damaged or made with another checkpoint."""


class RetrievalError(HopgateError):
    """A retriever raised, or returned something that is not a list of passages."""


class RemoteIndexError(RetrievalError):
    """An index server cannot be reached, does not answer in time, refuses a request or answers with nonsense.

    Attributes:
        status: The HTTP status of the answer; ``None`` if there was none.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class WeightsError(HopgateError):
    """Weights are not there, could not be fetched, or do not have the expected checksum."""


class ModelError(HopgateError):
    """An LM backend is unknown, wrongly declared or cannot be started."""


class ConfidenceError(HopgateError):
    """A confidence cannot be read, for instance since the backend gives no log-probabilities."""


class StateError(HopgateError):
    """A saved program, setting or trajectory has the wrong shape or is of a newer version."""


class MissingDependencyError(HopgateError):
    """An optional package or tool is needed; the message says how to install it."""
