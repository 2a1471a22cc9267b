"""Equality of two states to the bit, as `holdfast check` tests it."""

from holdfast.checks.same import assert_same

__all__ = ["assert_same"]
