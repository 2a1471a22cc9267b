"""Texts as a stream: any encoder makes vectors of them, and new topics arrive while it learns.

The encoder here hashes words and pairs of words, so the example needs nothing else. Any other fits in its place, for
example `SentenceTransformer(name).encode`: a function from a list of texts to (n, d) numbers.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from holdfast import Learner
from holdfast.adapters.hugging_face import batches

WIDTH = 512
TOPICS = {
    "weather": "rain snow wind storm cloud sun fog frost",
    "sport": "goal match team coach race win score league",
    "kitchen": "bread salt soup oven knife butter taste recipe",
    "travel": "train ticket hotel border map luggage coast flight",
}
EVERYDAY = "the a with for today again after more some very our they we and then"


def encode(texts: list[str]) -> Tensor:
    """(n, WIDTH) counts of hashed words and of pairs of neighbours."""
    vectors = torch.zeros(len(texts), WIDTH)
    for row, text in zip(vectors, texts, strict=True):
        words = text.split()
        for part in [*words, *map(" ".join, pairwise(words))]:
            row[zlib.crc32(part.encode()) % WIDTH] += 1
    return vectors


def stream(n_each: int, seed: int) -> Iterator[dict[str, object]]:
    """Texts with their topic, one topic after the other."""
    rng = random.Random(seed)
    for number, words in enumerate(TOPICS.values()):
        for _ in range(n_each):
            few = rng.sample(words.split(), 2) + rng.sample(EVERYDAY.split(), 4)
            rng.shuffle(few)
            yield {"text": " ".join(few), "topic": number}


def main() -> None:
    learner = Learner("slda", backbone="identity")
    for x, y in batches(stream(60, seed=0), "text", "topic", encode=encode):
        learner.observe(x, y)

    right = torch.cat([learner.predict(x) == y for x, y in batches(stream(50, seed=1), "text", "topic", encode=encode)])
    for topic, share in zip(TOPICS, right.float().view(len(TOPICS), -1).mean(dim=1), strict=True):
        print(f"{topic}: {100 * share:.0f} % right")
    said = learner.predict(encode(["we missed the train and the last flight"]))
    print("'we missed the train and the last flight' is", list(TOPICS)[int(said)])


if __name__ == "__main__":
    main()
