"""The state of a served model as plain values, which can be sent from one process to another."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.serve.hosted import Hosted
from holdfast.serve.wire import Described

GAUGES = {  # of Prometheus by name: kind and help
    "holdfast_batches_total": ("counter", "Batches observed."),
    "holdfast_samples_total": ("counter", "Samples observed."),
    "holdfast_accuracy": ("gauge", "Share of right predictions, of the last samples before they were learned."),
    "holdfast_alarms_total": ("counter", "Rises of the error rate (ADWIN)."),
    "holdfast_waiting_calls": ("gauge", "Calls that wait to be learned."),
    "holdfast_kept_inputs": ("gauge", "Inputs that wait for their labels."),
    "holdfast_expired_inputs_total": ("counter", "Inputs whose labels came too late, or never."),
    "holdfast_journal_bytes": ("gauge", "Bytes of the journal."),
}


@dataclass(frozen=True)
class ModelState:
    """A model as it was when it was asked.

    Attributes:
        gauges: values by a name of `GAUGES`; those that a model does not have are left out.
    """

    described: Described
    gauges: dict[str, float]
    is_failing: bool


def state_of(name: str, hosted: Hosted) -> ModelState:
    """Return the state of a model as it is now."""
    return ModelState(
        described(name, hosted), gauges_of(hosted), hosted.failure is not None or hosted.save_failure is not None
    )


def described(name: str, hosted: Hosted) -> Described:
    """Describe a model as it is now."""
    learner, accuracy = hosted.learner, hosted.record.accuracy
    memory = learner.memory if learner.n_observed else None
    return Described(
        name=name,
        settings=learner.settings.model_dump(mode="json"),
        n_observed=learner.n_observed,
        n_samples=hosted.record.n_samples,
        input_shape=None if learner.input_shape is None else list(learner.input_shape),
        accuracy=accuracy.window if accuracy.n else None,
        n_waiting=hosted.n_waiting,
        journal_bytes=hosted.journal.nbytes,
        samples_in_memory=None if memory is None else len(memory),
        failure=hosted.failure or hosted.save_failure,
    )


def gauges_of(hosted: Hosted) -> dict[str, float]:
    """Return the values of `GAUGES`."""
    accuracy = hosted.record.accuracy
    found: dict[str, float] = {
        "holdfast_batches_total": hosted.learner.n_observed,
        "holdfast_samples_total": hosted.record.n_samples,
        "holdfast_alarms_total": len(accuracy.alarms),
        "holdfast_waiting_calls": hosted.n_waiting,
        "holdfast_kept_inputs": len(hosted.waiting),
        "holdfast_expired_inputs_total": hosted.waiting.n_expired,
        "holdfast_journal_bytes": hosted.journal.nbytes,
    }
    if accuracy.n:
        found["holdfast_accuracy"] = accuracy.window
    return found
