"""The report page: one HTML file that needs nothing else, from recorded runs and local texts.

Everything is in the file: style, script and data. A Content-Security-Policy allows only the file's own style and script
(by their SHA-256), and no request at all. Data is embedded as JSON in which ``<``, ``>`` and ``&`` are escaped, and the
script puts it on the page as text nodes only, so that no text of a question or passage can become markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..core import HopgateError, InputError, check_file, user_path, write_atomic

_SCRIPTS = ("dom.js", "charts.js", "trajectory.js", "viewer.js", "page.js")
_RISKY = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


_OURS = (
    b'<meta name="generator" content="hopgate report">',
    b'content="default-src &#x27;none&#x27;; style-src &#x27;sha256-',
)
"""Either is near the beginning of every page; pages of older versions have the second only."""
_BEGINNING = 1024


def check_target(path: str | Path, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse to write a page where another file would be lost.

    Args:
        path: The file to write.
        inputs: Files and folders that the page is made from.

    Raises:
        InputError: The file is one of the inputs, no regular file, or not a page of ours.
        OSError: It cannot be read.
    """
    target = user_path(path)
    check_file(target)
    if not target.exists():
        return
    for item in inputs:
        source = user_path(item)
        if source.exists() and target.samefile(source):
            raise InputError(f"{target}: is what the page is made from; write the page to another file")
    with target.open("rb") as file:
        start = file.read(_BEGINNING)
    if start and not (start.startswith(b"<!DOCTYPE html>") and any(mark in start for mark in _OURS)):
        raise InputError(f"{target}: exists and is not a page that hopgate wrote; remove it, or name another file")


def write_report(path: str | Path, data: Mapping[str, Any]) -> int:
    """Write a report page, replacing the file at once if it is one; see :func:`check_target`.

    Args:
        path: The file.
        data: What :func:`~hopgate.evaluation.report_data.report_data` gave.

    Returns:
        Size of the page in bytes.

    Raises:
        InputError: The file is there and is not a page of ours.
        HopgateError: A part of the page is missing from the installation.
        OSError: The file cannot be written.
    """
    check_target(path)
    page = render_report(data).encode("utf-8")
    write_atomic(user_path(path), page)
    return len(page)


def render_report(data: Mapping[str, Any]) -> str:
    """The page as text.

    Args:
        data: See :func:`write_report`.

    Raises:
        HopgateError: A part of the page is missing from the installation.
    """
    style = _part("page.css")
    script = f"(() => {{\n'use strict';\n{''.join(_part(name) for name in _SCRIPTS)}}})();\n"
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    values = {
        "title": html.escape(str(data["title"])),
        "policy": html.escape(policy, quote=True),
        "style": style,
        "script": script,
        "data": embedded_json(data),
    }
    # One pass: what stands in a value is not looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match.group(1)], _part("page.html"))


def embedded_json(data: Any) -> str:
    """JSON that may stand in a ``<script>`` element: no character of it can end the element or the line."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _RISKY.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _part(name: str) -> str:
    part = files("hopgate.evaluation") / "report_page" / name
    if not part.is_file():
        raise HopgateError(f"report_page/{name} is missing from the installation; reinstall hopgate")
    return part.read_text(encoding="utf-8")
