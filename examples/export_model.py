"""A learner as an ONNX file, which another program runs without this package."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from holdfast import Learner

NAMES = ["left", "right"]


def main() -> None:
    rng = torch.Generator().manual_seed(0)
    learner = Learner("er", average=0.9, lr=0.05)  # predicts with the average of its weights
    for _ in range(60):
        y = torch.randint(2, (10,), generator=rng)
        learner.observe(torch.randn(10, 5, generator=rng) + 2 * (2 * y[:, None] - 1), y)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        learner.export(path, about={"names": NAMES})  # compared with the learner before it is written

        # From here on nothing of holdfast is needed.
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        about = json.loads(session.get_modelmeta().custom_metadata_map["holdfast"])
        (scores,) = session.run(["scores"], {"x": np.full((3, 5), [[-2.0], [2.0], [1.5]], dtype=np.float32)})

    print("inputs:", about["input_dtype"], about["input_shape"])
    print("classes:", [about["names"][c] for c in scores.argmax(axis=1)])


if __name__ == "__main__":
    main()
