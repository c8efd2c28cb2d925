"""Addresses and settings of a client of an index server."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from ..core import InputError

_SEARCH_PATH = "/api/search"


@dataclass(frozen=True)
class RemoteSettings:
    """Settings of a client that its pickles hold; see :class:`hopgate.index.remote.RemoteIndex`."""

    timeout: float
    retries: int
    backoff: float
    cache_size: int
    protocol: str
    max_bytes: int


def url_parts(url: str) -> SplitResult:
    """The parts of a server's url.

    Raises:
        InputError: It is no url of a server, or holds a password, a query or a fragment.
    """
    if not isinstance(url, str):
        raise InputError(f"the url of an index server must be a string, got a {type(url).__name__}")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise InputError(f"{url[:200]!r} is no url ({error}); give one such as http://127.0.0.1:8893") from error
    if "@" in parts.netloc:
        raise InputError("the url of an index server may hold no user or password; give a `token`")
    clean = all("!" <= character <= "~" for character in url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or not clean:
        raise InputError(f"{url[:200]!r} is no url of an index server; give one such as http://127.0.0.1:8893")
    return parts


def addresses(parts: SplitResult, protocol: str) -> tuple[str, str]:
    """Where the paths of a hopgate server begin, and where an original server searches."""
    root, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    if protocol == "colbert" and path:
        return root + path, root + path
    base = root + path.removesuffix(_SEARCH_PATH)
    return base, base + _SEARCH_PATH


def is_here(host: str) -> bool:
    """Whether a host is this machine, which no proxy stands in front of."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def checked_settings(settings: RemoteSettings) -> RemoteSettings:
    """The settings, if all have possible values.

    Raises:
        InputError: One has not.
    """
    for name, least in (("timeout", None), ("backoff", 0.0)):
        value = getattr(settings, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number or (value <= 0 if least is None else value < least):
            raise InputError(f"{name} must be a number of seconds, got {value!r:.80}")
    for name, least in (("retries", 0), ("cache_size", 0), ("max_bytes", 1)):
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{name} must be a whole number of at least {least}, got {value!r:.80}")
    if settings.protocol not in ("auto", "hopgate", "colbert"):
        raise InputError(f"protocol must be auto, hopgate or colbert, got {settings.protocol!r:.80}")
    return settings
