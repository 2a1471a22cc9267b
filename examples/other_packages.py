"""The same learner in scikit-learn and in River."""

from __future__ import annotations

import warnings

from river import datasets, evaluate, metrics, preprocessing
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from holdfast import HoldfastClassifier
from holdfast.adapters.river import RiverClassifier


def main() -> None:
    # scikit-learn: a pipeline, a search over methods, and a class that comes later
    x, y = load_digits(return_X_y=True)
    few = y[:1200] < 8
    pipeline = make_pipeline(StandardScaler(), HoldfastClassifier())
    search = GridSearchCV(pipeline, {"holdfastclassifier__method": ["ncm", "slda"]}, cv=2)
    search.fit(x[:1200][few], y[:1200][few])
    found = search.best_estimator_
    print("scikit-learn:", found[-1].method, "knows", found.classes_.tolist())
    found[-1].partial_fit(found[:-1].transform(x[:1200][~few]), y[:1200][~few])
    print(f"scikit-learn: knows {found.classes_.tolist()}, {100 * found.score(x[1200:], y[1200:]):.0f} % right")

    # River: its own evaluation, each row predicted before it is learned
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = preprocessing.StandardScaler() | RiverClassifier()
        print("River:", evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy()))


if __name__ == "__main__":
    main()
