"""Arrays of your own as a stream: scikit-learn's wine data, a class at a time.

On the command line: holdfast compare arrays --set stream.path=wine.npz --set stream.classes_per_task=1
"""

import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from holdfast import Learner
from holdfast.streams.arrays import Arrays


def main() -> None:
    x, y = load_wine(return_X_y=True)
    x = scale(x).astype(np.float32)
    held_out = np.arange(len(y)) % 5 == 0
    arrays = {"x_train": x[~held_out], "y_train": y[~held_out], "x_test": x[held_out], "y_test": y[held_out]}
    stream = Arrays(arrays, classes_per_task=1, seed=0)

    learner = Learner({"name": "er", "replay_size": 10}, memory=30, selection="ring", lr=0.1, seed=0)
    for task in stream:
        for step in range(task.n_steps(5)):
            batch = task.batch(step, size=5, seed=0)
            learner.observe(batch.x, batch.y)
        accuracies = []
        for seen in stream.tests(task.id + 1):
            test = seen.test[:]
            accuracies.append((learner.predict(test.x) == test.y).float().mean().item())
        print(f"after task {task.id + 1}: " + ", ".join(f"{100 * accuracy:.0f} %" for accuracy in accuracies))


if __name__ == "__main__":
    main()
