"""A stream that anything should learn: the one of `holdfast check`."""

from holdfast.checks.toy import N_FEATURES, Toy, toy_batches

__all__ = ["N_FEATURES", "Toy", "toy_batches"]
