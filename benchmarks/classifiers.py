"""How else could a DRR that has learned predict? Its accuracy with each classifier, and with mirrored pictures too.

    python benchmarks/classifiers.py RUN [--data DIR]

RUN is the folder of a finished run of `drr`, which holds its last checkpoint. Nothing is learned here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from holdfast.build import build_stream
from holdfast.core.checkpoint import read_checkpoint
from holdfast.core.classes import predicts_by_task
from holdfast.experiments.results import read_result
from holdfast.experiments.run import CHECKPOINT, Run
from holdfast.methods.drr import DRR
from holdfast.methods.drr_plus import DRRPlus


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    experiment = read_result(arguments.run / "result.json").experiment
    stream = build_stream(experiment.stream, arguments.data, experiment.seed)
    finished = Run(experiment, stream, "cpu")
    finished.restore(read_checkpoint(arguments.run / CHECKPOINT))
    learner, method = finished.learner, finished.learner.method
    assert isinstance(method, DRR)
    if isinstance(method, DRRPlus):
        method.mirror_scores = False  # both pictures are asked for below
    print(f"{experiment.label}, {len(stream)} tasks: accuracy (%), and with the scores of the mirrored pictures added")
    for classifier in ("head", "memory", "centroids"):
        method.classifier, method._means = classifier, None
        right = []
        for task in stream.tests(len(stream)):
            test = task.test[:]
            known = test.task if predicts_by_task(experiment.setting) else None
            plain, mirrored = learner.scores(test.x, known), learner.scores(test.x.flip(-1), known)
            both = [(scores.argmax(dim=1) == test.y).double().mean() for scores in (plain, plain + mirrored)]
            right.append(torch.stack(both))
        plain_mean, both_mean = (100 * torch.stack(right).mean(dim=0)).tolist()
        print(f"{classifier:<10} {plain_mean:6.2f} {both_mean:6.2f}")


if __name__ == "__main__":
    main()
