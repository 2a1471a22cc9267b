"""Settings of learners that differ in all that a file of a learner may hold."""

from __future__ import annotations

from typing import Any

N_INPUTS = 4
LEARNERS: dict[str, dict[str, Any]] = {
    "finetune, adam": {"method": "finetune", "optimizer": "adam", "average": 0.9},
    "er": {"method": "er", "memory": 20},
    "er, ring": {"method": "er", "selection": "ring", "retrieval": "old_tasks", "momentum": 0.9, "average": 0.9},
    "er, aser": {"method": "er", "selection": "shapley", "retrieval": "shapley"},
    "er, gss": {"method": "er", "selection": "gradient_diversity"},
    "er, herding": {"method": "er", "selection": "mean_of_features", "memory": "9 KB"},
    "er, centroids in bytes": {"method": "er", "selection": {"name": "centroid", "relative": True}, "memory": "9 KB"},
    "er_ace, fixed head": {"method": "er_ace", "n_classes": 9, "optimizer": "adamw", "lr": 0.01},
    "der": {"method": "der", "label_weight": 0.5, "memory": "9 KB"},
    "drr": {"method": {"name": "drr", "classifier": "centroids"}},
    "drr, by memory": {"method": {"name": "drr", "classifier": "memory", "reading": "samples"}},
    "drr_plus": {"method": {"name": "drr_plus", "score_distillation": 1.0, "between_samples": True}},
    "mdmt_r": {"method": "mdmt_r"},
    "scr": {"method": {"name": "scr", "projection": 6, "replay_size": 5}},
    "scr, adam": {"method": {"name": "scr", "projection": None}, "optimizer": "adam"},
    "lode": {"method": "lode"},
    "pcr": {"method": "pcr"},
    "hpcr": {"method": "hpcr", "memory": "9 KB"},
    "gec": {"method": "gec"},
    "gem": {"method": "gem"},
    "agem": {"method": "agem"},
    "mega1": {"method": "mega1"},
    "mer": {"method": "mer"},
    "ewc": {"method": "ewc", "fisher_every": 2},
    "mas": {"method": "mas", "consolidate_every": 2},
    "si": {"method": "si", "consolidate_every": 3},
    "rwalk": {"method": "rwalk", "fisher_every": 2},
    "ncm": {"method": "ncm"},
    "slda": {"method": "slda"},
    "knn": {"method": "knn", "memory": "3 KB"},
    "analytic": {"method": {"name": "analytic", "width": 7}},
    "randumb": {"method": {"name": "randumb", "width": 8}},
    "hedge": {"method": {"name": "hedge", "hidden": 6}},
}
