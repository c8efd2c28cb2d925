"""Optimizers: fitting what a program decides by."""

from __future__ import annotations

from .tau import FittedTau, fit_tau

__all__ = ["FittedTau", "fit_tau"]
