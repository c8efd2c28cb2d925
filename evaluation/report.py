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
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..core import HopgateError, user_path, write_atomic

_SCRIPTS = ("dom.js", "charts.js", "trajectory.js", "viewer.js", "page.js")
_RISKY = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def write_report(path: str | Path, data: Mapping[str, Any]) -> int:
    """Write a report page, replacing the file at once.

    Args:
        path: The file.
        data: What :func:`~hopgate.evaluation.report_data.report_data` gave.

    Returns:
        Size of the page in bytes.

    Raises:
        HopgateError: A part of the page is missing from the installation.
        OSError: The file cannot be written.
    """
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
