"""`holdfast features`: compute the features of a stream's data set once."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from holdfast.cli import completion
from holdfast.cli.options import Changes, Data, Threads, err, out
from holdfast.data.places import user_cache
from holdfast.parts import Unknown

OF_PARTS = ("stream", "backbone")


def features_command(
    stream: Annotated[
        str, typer.Argument(help="A stream of 'holdfast list streams'.", autocompletion=completion.streams)
    ],
    backbone: Annotated[
        str, typer.Option(help="The network that makes the features.", autocompletion=completion.backbones)
    ] = "efficientnet_lite0",
    changes: Changes = None,
    seed: Annotated[int, typer.Option(help="Seed of a network without pre-trained weights.")] = 1234,
    to: Annotated[Path | None, typer.Option(help="Folder of the file, instead of the user's cache.")] = None,
    data: Data = None,
    threads: Threads = 1,
) -> None:
    """Compute the features of every sample of a stream's data set, and store them in one file."""
    import torch

    from holdfast.experiments.features import compute_features
    from holdfast.experiments.recipes import parse_changes
    from holdfast.settings import Part
    from holdfast.streams._feature_file import FOLDER

    torch.set_num_threads(threads)
    options: dict[str, dict[str, object]] = {part: {} for part in OF_PARTS}
    for name, value in parse_changes(changes or []).items():
        part, _, option = name.partition(".")
        if part not in options or not option:
            raise Unknown(
                f"'{name}' cannot be set here: only options of the stream and the backbone, as stream.size=84"
            )
        options[part][option] = value
    if data is not None and to is None:
        to = data / FOLDER
    of, by = Part(name=stream, options=options["stream"]), Part(name=backbone, options=options["backbone"])
    with Progress(console=err, transient=True) as progress:
        bar = progress.add_task("samples", total=None)
        made = compute_features(
            of, by, data=data, seed=seed, progress=lambda done, total: progress.update(bar, completed=done, total=total)
        )
    path = made.write(to or user_cache() / FOLDER)
    n, width = len(made.train.rows) + len(made.test.rows), made.train.features.shape[1]
    out.print(f"{n:,} samples, {width:,} features each: written to {path}")
    command = ["holdfast", "run", "features", "--method", "slda", "--set", "backbone=identity"]
    command += ["--set", f"stream.of={stream}", "--set", f"stream.cache={path.stem}"]
    command += [part for name, value in options["stream"].items() for part in ("--set", f"stream.{name}={value}")]
    out.print(f"to learn from them: {shlex.join(command)}")
