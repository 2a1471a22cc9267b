"""Several small networks that are learned in the same few matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from holdfast.core.state import Count, State, Stateful, check_tensor

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # of Adam


class Networks(Stateful):
    """K networks of two hidden layers with ReLU, each with a learning rate of its own.

    All weights of a network are one row of `weights` (K, n_weights), so a step of Adam is a few operations on one
    tensor. The gradient is written out, which for networks as small as these takes a third of the time of autograd.

    Args:
        rates: (K,) the learning rates.
        rng: for the first weights of the hidden layers; those of the last layer begin at 0.
    """

    weights: Tensor
    moment_1: Tensor
    moment_2: Tensor
    n_steps: Count
    n_classes: Count

    def __init__(
        self, n_inputs: int, hidden: int, n_classes: int, rates: Sequence[float], rng: torch.Generator
    ) -> None:
        self.n_inputs, self.hidden, self.n_classes = n_inputs, hidden, n_classes
        self.rates = torch.tensor(rates)[:, None]
        layers = []
        for n_in in (n_inputs, hidden):
            first = torch.randn(len(rates), n_in * hidden, generator=rng) * math.sqrt(2 / n_in)
            layers += [first, torch.zeros(len(rates), hidden)]
        self.weights = torch.cat([*layers, torch.zeros(len(rates), (hidden + 1) * n_classes)], dim=1)
        self.moment_1, self.moment_2 = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self.n_steps = 0

    def to(self, device: torch.device) -> Networks:
        for name in ("rates", "weights", "moment_1", "moment_2"):
            setattr(self, name, getattr(self, name).to(device))
        return self

    def scores(self, x: Tensor) -> Tensor:
        """Return (K, n, n_classes) scores of inputs (n, n_inputs), or (K, n, n_inputs) other ones for each network."""
        return self._pass(x if x.ndim == 3 else x.expand(len(self.weights), -1, -1))[2]

    def learn(self, x: Tensor, y: Tensor, competing: Tensor | None, weights: Tensor | None = None) -> Tensor:
        """Go one step down the mean cross-entropy of each network; give the scores (K, n, n_classes) before it.

        Args:
            x: (K, n, n_inputs).
            y: (K, n) classes.
            competing: (K, n, n_classes), the classes that compete for each sample; None for all.
            weights: (K, n), how much each sample counts in the mean; None for all 1.
        """
        first, second, scores = self._pass(x)
        masked = scores if competing is None else scores.masked_fill(~competing, -torch.inf)
        to_scores = masked.softmax(dim=2)
        to_scores.scatter_add_(2, y[:, :, None], to_scores.new_full((*y.shape, 1), -1.0))
        to_scores /= y.shape[1]
        if weights is not None:
            to_scores *= weights[:, :, None]
        _, _, into_second, _, into_scores, _ = self._layers()
        to_second = torch.bmm(to_scores, into_scores.mT) * (second > 0)
        to_first = torch.bmm(to_second, into_second.mT) * (first > 0)
        gradient = [
            part
            for below, above in ((x, to_first), (first, to_second), (second, to_scores))
            for part in (torch.bmm(below.mT, above).flatten(1), above.sum(dim=1))
        ]
        self._step(torch.cat(gradient, dim=1))
        return masked

    def grow(self, n_classes: int) -> None:
        """Make room for `n_classes` classes; what is new begins at 0."""
        n, new = self.n_classes, n_classes - self.n_classes
        for name in ("weights", "moment_1", "moment_2"):
            rows: Tensor = getattr(self, name)
            body, last, bias = torch.split(rows, [rows.shape[1] - (self.hidden + 1) * n, self.hidden * n, n], dim=1)
            last = torch.nn.functional.pad(last.reshape(len(rows), self.hidden, n), (0, new)).flatten(1)
            setattr(self, name, torch.cat([body, last, torch.nn.functional.pad(bias, (0, new))], dim=1))
        self.n_classes = n_classes

    def load_state_dict(self, state: State) -> None:
        """Restore, with as many classes as were saved; raise ValueError if the parts do not fit together."""
        if not isinstance(state, dict) or type(state.get("n_classes")) is not int:
            raise ValueError("the saved networks do not say their number of classes")
        body = self.weights.shape[1] - (self.hidden + 1) * self.n_classes
        shape = (len(self.weights), body + (self.hidden + 1) * state["n_classes"])
        for name in ("weights", "moment_1", "moment_2"):
            check_tensor(
                state.get(name), like=self.weights.mT[:0].mT.new_empty(0, shape[1]), name=f"{name} of networks"
            )
            if state[name].shape != shape:
                raise ValueError(f"{name} of the saved networks has shape {tuple(state[name].shape)}, not {shape}")
        if bool((state["moment_2"] < 0).any()):
            raise ValueError("the saved networks have squares below 0")
        if not torch.equal(state["rates"].cpu(), self.rates.cpu()) or state["n_inputs"] != self.n_inputs:
            raise ValueError("the saved networks have other rates or inputs than the settings say")
        if state["hidden"] != self.hidden:
            raise ValueError(f"the saved networks have layers of {state['hidden']} units, not {self.hidden}")
        super().load_state_dict(state)

    def _layers(self) -> list[Tensor]:
        """Return the weights (K, n_in, n_out) and biases (K, 1, n_out) of the three layers, as views."""
        layers, start = [], 0
        for n_in, n_out in ((self.n_inputs, self.hidden), (self.hidden, self.hidden), (self.hidden, self.n_classes)):
            layers.append(self.weights[:, start : start + n_in * n_out].view(-1, n_in, n_out))
            start += n_in * n_out
            layers.append(self.weights[:, None, start : start + n_out])
            start += n_out
        return layers

    def _pass(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the output of each layer for x (K, n, n_inputs)."""
        one, bias_one, two, bias_two, three, bias_three = self._layers()
        first = torch.baddbmm(bias_one, x, one).relu_()
        second = torch.baddbmm(bias_two, first, two).relu_()
        return first, second, torch.baddbmm(bias_three, second, three)

    def _step(self, gradient: Tensor) -> None:
        """Go a step of Adam down `gradient`."""
        self.n_steps += 1
        self.moment_1.lerp_(gradient, 1 - BETA_1)
        self.moment_2.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
        size = self.moment_2.sqrt().div_(math.sqrt(1 - BETA_2**self.n_steps)).add_(EPSILON)
        self.weights.addcdiv_(self.moment_1 * (self.rates / (1 - BETA_1**self.n_steps)), size, value=-1)
