"""Write stored results with their experiments whole, and pack folders of runs into one file each.

    python results/migrate.py FOLDER [--pack]

Until now a result stated only what its experiment changed, and its folder was named by a hash of that. This script

1. states every option: what a run did not say has its neutral value (`before` in the code), else its default;
2. writes an option by the name that it has now (RENAMED);
3. moves each run to the folder that its experiment, whole, is named by, with a matrix row a line;
4. writes the digest of the experiment into the record beside a result, and compresses the record;
5. keeps a run once that was stored twice because one stated a default, or moves the second to `earlier` if their
   numbers differ;
6. with `--pack`, rounds the features in compressed records to 1/256 of a spread, but for those after the first task;
7. with `--pack`, puts the runs of each benchmark that left no record into one `results.jsonl`, a result a line; the
   fingerprint of code that several runs share stands in the first of their lines.

Numbers of results are copied. A folder that is migrated already is left as it is.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from holdfast.core.checkpoint import read_checkpoint, write_checkpoint
from holdfast.core.state import State
from holdfast.experiments.experiment import Experiment
from holdfast.experiments.probes.record import RECORD, RECORD_PACKED, XZ_FILTERS, read_record
from holdfast.experiments.results import PACKED, RESULT, Result, as_text, packed_text, read_packed, write_text
from holdfast.settings import resolved_settings

EARLIER = "earlier"  # where a run goes whose experiment was run again, with other numbers
STEPS_IN_A_SPREAD = 256  # features are rounded to so many steps in one unit of their spread
RENAMED = {("method", "drr", "scale"): "logit_scale"}  # (field, part, option)


def whole(stated: dict[str, Any]) -> Experiment:
    """Return the experiment of a file with every option stated."""
    content = dict(stated)
    for (field, part, old), new in RENAMED.items():
        if content[field]["name"] == part and old in content[field]:
            content[field] = {new if name == old else name: value for name, value in content[field].items()}
    return resolved_settings(Experiment.stored(content), stored=True)


def migrated(path: Path) -> dict[str, Any]:
    """Return the content of a result with its experiment whole; all else is as it was."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    content["experiment"] = whole(content["experiment"]).model_dump(mode="json")
    Result.model_validate(content)
    return content


def rename(root: Path) -> None:
    """Move each run below `root` to the folder that its whole experiment is named by."""
    for path in sorted(root.rglob(RESULT)):
        content = migrated(path)
        experiment = Experiment.stored(content["experiment"])
        folders = path.parent.parts[-3:]
        to = path.parent.with_name(Path(experiment.path).name)
        if folders == (*folders[:2], to.name) and path.read_text() == as_text(content):
            continue
        if to.exists() and to != path.parent:
            unlike = differing(content, to / RESULT)
            print(f"{path.parent} is {to} again{unlike}")
            if unlike:
                write_text(root / EARLIER / experiment.path / RESULT, as_text(content))
            shutil.rmtree(path.parent)
            continue
        write_text(path, as_text(content))
        if (path.with_name(RECORD)).exists():
            pack_record(path.with_name(RECORD), experiment.digest)
        path.parent.rename(to)


def differing(content: dict[str, Any], other: Path) -> str:
    """Return in words how the numbers of a run differ from those of another of the same experiment."""
    known = json.loads(other.read_text(encoding="utf-8"))
    names = [name for name in ("accuracies", "moved", "apart") if content.get(name) != known.get(name)]
    return f", but for {', '.join(names)}" if names else ""


def pack_record(path: Path, digest: str) -> None:
    """Write a record with another digest of its experiment, compressed."""
    write_compressed(path, read_checkpoint(path) | {"digest": digest})


def write_compressed(path: Path, state: State) -> None:
    """Write a record beside `path` as a compressed file, and remove `path`."""
    write_checkpoint(path, state)
    path.with_name(RECORD_PACKED).write_bytes(lzma.compress(path.read_bytes(), filters=XZ_FILTERS))
    path.unlink()
    path.with_name(f"{RECORD}.previous").unlink(missing_ok=True)


def round_features(packed: Path) -> None:
    """Round the features in a compressed record. The low bits are noise, which does not compress.

    Features after the first task stay as they are: a drift map is fitted to them, and a fit may change with any bit.
    """
    record = read_record(packed)
    if record.features is None:
        return
    first, later = record.features[:1], record.features[1:]
    rounded = torch.cat([first, ((later.double() * STEPS_IN_A_SPREAD).round() / STEPS_IN_A_SPREAD).half()])
    if not torch.equal(rounded, record.features):
        write_compressed(packed.with_name(RECORD), asdict(replace(record, features=rounded)))


def pack(folder: Path) -> None:
    """Write the runs below a folder into one file, but for those with a record."""
    target = folder / PACKED
    results = {} if not target.exists() else {r.experiment.path: r for r in read_packed(target).values()}
    packed = []
    for path in sorted(folder.rglob(RESULT)):
        if (path.with_name(RECORD_PACKED)).exists() or (path.with_name(RECORD)).exists():
            continue
        result = Result.model_validate_json(path.read_text(encoding="utf-8"))
        if result.experiment.path in results:
            raise ValueError(f"{path}: another run below {folder} has the same experiment")
        results[result.experiment.path] = result
        packed.append(path.parent)
    if packed:
        write_text(target, packed_text(result for _, result in sorted(results.items())))
    for run in packed:
        shutil.rmtree(run)
    for empty in sorted((each for each in folder.rglob("*") if each.is_dir()), reverse=True):
        if not any(empty.iterdir()):
            empty.rmdir()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pack", action="store_true")
    given = parser.parse_args()
    rename(given.folder)
    if given.pack:
        for packed in sorted(given.folder.rglob(RECORD_PACKED)):
            round_features(packed)
        for benchmark in sorted({path.parents[2] for path in given.folder.rglob(RESULT)}):
            pack(benchmark)


if __name__ == "__main__":
    main()
