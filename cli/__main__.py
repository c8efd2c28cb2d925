"""``python -m hopgate.cli``."""

from __future__ import annotations

from . import main

main(prog_name="hopgate")
