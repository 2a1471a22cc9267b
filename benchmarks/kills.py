"""Kill a learner with a journal at random instants: what it said to have learned is there, to the bit.

    python benchmarks/kills.py [--kills 1000] [--seed 0] [--longest 0.15]

A process loads the learner, or begins it, and replays its journal. It then observes batch after batch, some of which
are refused, and says each number when `observe` has returned. Every seventh batch it saves. The process is killed with
SIGKILL after a random time, at whatever it does then: loading, replaying, writing, learning, saving or forgetting. The
next one says what it has after its replay. That has to be everything that was said, with the bits of a learner that
never crashed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import struct
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import torch

from holdfast import Learner, load_learner
from holdfast.core.calls import CallJournal
from holdfast.core.checkpoint import checksum_of

SETTINGS = {"method": "er", "memory": 50, "n_classes": 5, "lr": 0.05}
SAID = struct.Struct("<c I 64s")  # b"B" when begun or b"L" when learned, the batches observed, the digest when begun


def batch(number: int) -> tuple[torch.Tensor, list[int]]:
    rng = torch.Generator().manual_seed(number)
    y = torch.randint(5, (4,), generator=rng)
    return torch.randn(4, 8, generator=rng) + 3 * torch.eye(5, 8)[y], y.tolist()


def live(folder: Path, say: int) -> None:
    """Load or begin a learner, and observe until the process is killed."""
    path = folder / "learner"
    journal = CallJournal(folder / "journal", segment_bytes=2000)
    learner = load_learner(path, journal=journal) if path.exists() else Learner(**SETTINGS, journal=journal)
    os.write(say, SAID.pack(b"B", learner.n_observed, checksum_of(learner.state_dict()).encode()))
    while True:
        number = learner.n_observed
        if number % 5 == 0:
            with suppress(ValueError):
                learner.observe(batch(number)[0], [0, 1, 2, 99])
        learner.observe(*batch(number))
        os.write(say, SAID.pack(b"L", learner.n_observed, b""))
        if learner.n_observed % 7 == 0:
            learner.save(path)


def killed(folder: Path, seconds: float) -> list[tuple[bytes, int, bytes]]:
    """Start a process, kill it after some time, and return what it said."""
    read, say = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            live(folder, say)
        except BaseException as error:
            print(f"the learner stopped by itself: {type(error).__name__}: {error}", flush=True)
        finally:
            os._exit(1)
    os.close(say)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    return [SAID.unpack_from(content, at) for at in range(0, len(content) // SAID.size * SAID.size, SAID.size)]


class Reference:
    """The digests of a learner that never crashed, by the batches that it has observed."""

    def __init__(self) -> None:
        self.learner = Learner(**SETTINGS)
        self.digests = [checksum_of(self.learner.state_dict())]

    def at(self, n: int) -> str:
        while len(self.digests) <= n:
            self.learner.observe(*batch(len(self.digests) - 1))
            self.digests.append(checksum_of(self.learner.state_dict()))
        return self.digests[n]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=float, default=0.15, help="Seconds until a kill; more on a busy machine.")
    given = parser.parse_args()
    torch.set_num_threads(1)  # since processes are forked
    rng, reference, found = random.Random(given.seed), Reference(), Counter[str]()
    said = 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(given.kills):
            lines = killed(Path(folder), rng.uniform(0, given.longest))
            found["killed before the replay was done"] += not lines
            for kind, n, digest in lines:
                if kind == b"B":
                    found["restarts that were checked"] += 1
                    found["restarts that lost what was said"] += n < said
                    found["restarts with other bits"] += digest.decode() != reference.at(n)
                    found["batches that were learned and not yet said"] += max(0, n - said)
                else:
                    found["batches said"] += 1
                said = max(said, n)
    print(f"{given.kills:,} SIGKILLs at random instants of 0 to {1000 * given.longest:.0f} ms, seed {given.seed}")
    print(f"  {'batches learned':<44}{said:>8,}")
    for name in (
        "batches said",
        "batches that were learned and not yet said",
        "killed before the replay was done",
        "restarts that were checked",
        "restarts that lost what was said",
        "restarts with other bits",
    ):
        print(f"  {name:<44}{found[name]:>8,}")


if __name__ == "__main__":
    main()
