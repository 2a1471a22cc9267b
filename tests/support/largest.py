"""Largest tensors that some code makes."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Largest(TorchDispatchMode):
    """Note the bytes of the largest tensor that is made inside."""

    nbytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for made in result if isinstance(result, list | tuple) else [result]:
            if isinstance(made, Tensor) and made.device.type != "meta":
                self.nbytes = max(self.nbytes, made.nbytes)
        return result
