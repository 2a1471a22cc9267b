"""Every number that the README and the docs tell is one of the stored results."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from holdfast.experiments.differences import decided
from holdfast.experiments.metrics import average_accuracy
from holdfast.experiments.results import Result, ResultStore
from holdfast.experiments.tables import COLUMNS, mean_and_spread, measured
from holdfast.report.figures import make_figure, paper_figures, with_maps
from holdfast.report.paper import make_table, paper_tables, stored_runs

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = {path.stem: path for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]}
SLOTS = "selection.per_class=13"
WRITTEN_WHOLE = "results"  # tested as a whole, with the command that writes it
ACCURACY, FORGETTING, REMEMBERING, LEARNED = COLUMNS


def test_the_tables_are_those_of_the_stored_results():
    refreshed = runpy.run_path(str(ROOT / "docs" / "refresh.py"))["refreshed"]
    for path in PAGES.values():
        text = path.read_text()
        assert refreshed(text) == text, f"write {path.name} again: make pages"


def test_the_readme_says_what_became_of_the_papers_numbers():
    tables = [make_table(paper, stored_runs([RESULTS]), "cpu") for paper in paper_tables().values()]
    verdicts = [
        cell.verdict.short if cell.verdict else "not run"
        for table in tables
        for row in table.rows
        for cell in row.cells
        if cell.paper and row.name != "drr"  # beside which the paper's numbers stand again
    ]
    words = ("reproduced", "above", "below", "not comparable", "not run")
    counts = ", ".join(str(verdicts.count(word)) for word in words)
    text = PAGES["README"].read_text()
    assert f"the paper's numbers: {', '.join(words)} |" in text
    assert f"| {counts} of {len(verdicts)} |" in text


@pytest.mark.parametrize("benchmark", sorted(path.name for path in RESULTS.iterdir() if (path / "er").exists()))
def test_each_benchmark_that_was_run_has_its_table(benchmark):
    assert f"<!-- results/{benchmark} -->" in PAGES["measured"].read_text()


@pytest.mark.parametrize("page", sorted(PAGES.keys() - {WRITTEN_WHOLE}))
def test_every_decimal_in_the_prose_is_made_from_a_stored_result(page):
    text = _prose(PAGES[page].read_text())
    for sentence in TOLD[page]() if page in TOLD else ():
        assert sentence in text
        text = text.replace(sentence, "…")
    assert re.findall(r".{0,60}\d\.\d.{0,20}", text) == []


def test_the_rows_that_begin_otherwise_than_the_recipe_are_named():
    page = " ".join(PAGES["measured"].read_text().split())
    assert f"Rows that begin as torch has them: {begun_with_torch()}." in page


def test_the_stored_records_make_a_map_of_the_drift():
    figure = make_figure(paper_figures()["figure-tsne"], stored_runs([RESULTS]), "cpu")
    (table,) = figure.tables
    assert [one.row for one in with_maps(figure).maps] == [row.name for row in table.rows]


def _prose(page: str) -> str:
    """A page in one line, without tables, code and comments."""
    tables = r"<!-- (?:results/[\w/]+|headlines) -->.*?<!-- end -->"
    page = re.sub(rf"```.*?```|{tables}|<!--.*?-->|^(?: {{4}}|\|).*?$", "", page, flags=re.DOTALL | re.MULTILINE)
    return " ".join(re.sub(r"`[^`]*`", "`", page).split())


def runs(folder: str, row: str, *settings: str) -> list[Result]:
    """The stored runs of a row, by seed, that have the settings, as 'method.epsilon=0.01'."""
    found = [
        result
        for result in ResultStore(RESULTS / folder).results()
        if result.experiment.row == row
        and set(settings) <= {f"{name}={value}" for name, value in decided(result.experiment).items()}
    ]
    assert found, (folder, row, settings)
    return sorted(found, key=lambda result: result.experiment.seed)


def told(results: list[Result], column: str = ACCURACY, digits: int = 2) -> str:
    """Mean and deviation over runs, as tables have them."""
    return mean_and_spread([measured(result, column) for result in results], 1, digits)


def on_the_way(folder: str, row: str, *settings: str) -> str:
    """The mean over A_4 to A_T of one run, in per cent."""
    (result,) = runs(folder, row, *settings)
    return f"{np.mean(trend(result)[3:]):.1f}"


def trend(result: Result) -> list[float]:
    """A_1 to A_T, in per cent."""
    return [100 * average_accuracy(result.accuracies, t) for t in range(len(result.accuracies))]


def printed(table: str, row: str, column: int = 0) -> str:
    """What the paper prints in a column of a row; the first is A_T."""
    return next(cells[column] for _, name, *cells in paper_tables()[table].rows if name == row)


def number(file: str, pattern: str) -> str:
    """The one number that a pattern finds in a file of results."""
    (found,) = re.findall(pattern, (RESULTS / file).read_text(), flags=re.MULTILINE)
    return str(found)


def told_in_the_readme() -> Iterator[str]:
    (python,) = re.findall(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    yield f"Python {python} or newer"
    yield f"On Split CIFAR it has {told(runs('split_cifar100', 'drr_plus'))} %"
    yield f"takes {number('step.txt', r'ratio +([0-9.]+)')} times as long as the same arithmetic written by hand"
    yield f"{number('step_resnet.txt', r'drr +([0-9.]+) times er')} times one of ` on the ResNet"


def told_in_measured() -> Iterator[str]:
    (table,) = make_figure(paper_figures()["figure-tsne"], stored_runs([RESULTS]), "cpu").tables
    drift = ", ".join(f"{row.label.removesuffix(' (Ours)')} {row.cells[-1].mean:.2f}" for row in table.rows)
    yield f"is what the paper calls drift: {drift}"
    yield f"A-GEM is far below the paper's {printed('table-2', 'agem')}"
    few, many = (trend(*runs(folder, "agem"))[:7] for folder in ("split_cifar100", "seven_tasks"))
    yield f"it has {many[-1]:.1f} % with 256 where it has {few[-1]:.1f} with 32"
    yield f"and {np.mean(many[1:]):.1f} against {np.mean(few[1:]):.1f} in the mean over A_2 to A_7"
    leaning, upright = (trend(*runs(folder, "gem"))[1:7] for folder in ("split_cifar100", "seven_tasks"))
    yield f"it has {np.mean(upright):.1f} % in the same mean, where it has {np.mean(leaning):.1f} with γ = ½"
    shared, ours = (runs("split_cub", *row)[:1] for row in (("mdmt_r", "selection=reservoir"), ("drr",)))
    yield f"MDMT-R has {told(shared)} % on seed 1234 and forgets {told(shared, FORGETTING, 3)}"
    yield f"where ` has {told(ours)} and {told(ours, FORGETTING, 3)}"
    yield f"took {number('step.txt', r'ratio +([0-9.]+)')} times as long"
    yield f"took {number('step_resnet.txt', r'drr +([0-9.]+) times er')} times that of `"
    yield f"{number('step_256.txt', r'drr +([0-9.]+) times er')} times on the MLP"
    yield f"choosing what to remember is {number('step_256.txt', r'times er, ([0-9.]+)% of it')} % of it"
    yield f"took {number('precision.txt', r'ratio +([0-9.]+) bfloat16')} times that in float32"


def begun_with_torch() -> str:
    """The rows of Split CIFAR that were run with torch's initialisation."""
    begun = {
        f"`{result.experiment.row}`"
        for result in ResultStore(RESULTS / "split_cifar100").results()
        if decided(result.experiment)["backbone.initialisation"] == "torch"
    }
    return ", ".join(sorted(begun))


def told_in_drr() -> Iterator[str]:
    digits = runs("permuted_mnist", "drr")
    yield f"` has {told(digits)} % on {len(digits)} seeds and forgets {told(digits, FORGETTING, 3)}"
    yield f"the paper has {printed('table-1', 'drr')}. Averaged replay"
    yield f"has {told(runs('permuted_mnist', 'er_average')[:1])} on one of them"

    drr = runs("split_cifar100", "drr", "selection=centroid", "method.replay_size=32")
    assert [result.experiment.seed for result in drr] == [1234, 1235, 1236, 1237, 1238]
    *others, last = (f"{measured(result, ACCURACY):.1f}" for result in drr)
    yield f"` has {', '.join(others)} and {last} %, in the mean {told(drr)}, and forgets {told(drr, FORGETTING, 3)}"
    yield f"with an LTR of {told(drr, REMEMBERING, 3)}"
    accuracy, forgetting, remembering = (printed("table-2", "drr", column) for column in range(3))
    yield f"The paper has {accuracy}, {forgetting} and {remembering}"
    many = runs("split_cifar100", "drr", "method.replay_size=256")
    seed, forgotten, remembered = many[0].experiment.seed, told(many, FORGETTING, 3), told(many, REMEMBERING, 3)
    yield f"seed {seed} has {told(many)} %, {forgotten} and {remembered}: no better than with 32"
    with_256, with_32 = (
        told(runs("earlier/split_cifar100", "drr", f"method.replay_size={n}", "method.distillation=10", SLOTS)[:1])
        for n in (256, 32)
    )
    yield f"earlier recipe had {with_256} % with 256 and {with_32} with 32"
    averaged = runs("split_cifar100", "er_average", "backbone.initialisation=torch")
    yield f"has {told(averaged)} and forgets {told(averaged, FORGETTING, 3)}"
    first, second, third = (
        f"{measured(mine, ACCURACY) - measured(other, ACCURACY):.1f}"
        for mine, other in zip(drr[:3], averaged, strict=True)
    )
    yield f"` is above it on each of the three, by {first}, {second} and {third} points"
    (likewise,) = runs("split_cifar100", "er_average", "backbone.initialisation=agem")
    yield f"with the predecessors' initialisation {told([likewise])} on seed 1234"
    (kept_at_random,) = runs("split_cifar100", "drr", "selection=reservoir")
    yield f"with a reservoir in place of COS, ` has {told([kept_at_random])} %"
    yield f"and forgets {told([kept_at_random], FORGETTING, 3)} instead of {told(drr[:1], FORGETTING, 3)}"

    ring = runs("split_cifar100", "er", "selection=ring")[:1]
    yield f"has {told(runs('sampling', 'centroid'))} % where ` has {told(ring)} (seed 1234)"
    yield f"the paper has {printed('table-7', 'centroid')} and {printed('table-7', 'ring')}"
    chosen = told(runs("earlier/sampling", "centroid"))
    latest = told(runs("earlier/split_cifar100", "er", "backbone.precision=float32"))
    yield f"it had {chosen} where ` had {latest}"
    others = ("mean_of_features", "shapley", "gradient_diversity")
    herding, aser, gss = (told(runs("sampling", row)) for row in others)
    first, second, third = (printed("table-7", row) for row in others)
    yield f"herding {herding} %, ASER {aser}, GSS {gss}, where it has {first}, {second} and {third}"

    literal = runs("split_cifar100", "drr_literal")
    yield f"On Split CIFAR it has {told(literal)} % and forgets {told(literal, FORGETTING, 3)}"

    own, own_distilled, seen, seen_margins, seen_both = (
        measured(*runs("ablation_margins", row), ACCURACY)
        for row in ("vanilla", "vanilla_cdl", "t0_0_c0_0", "t0_1_c0_01", "t0_1_c0_01_cdl")
    )
    both = measured(drr[0], ACCURACY)
    yield f"against their own task: {own:.2f} % without margins and distillation"
    yield f"{own_distilled:.2f} with the distillation"
    yield f"{both:.2f} with margins besides"
    yield f"{seen:.2f} without margins and distillation, {seen_margins:.2f} with margins, {seen_both:.2f} with both"
    yield f"gains {own_distilled - own:.1f} points there and {seen_both - seen_margins:.1f} here"
    yield f"costs {both - seen_both:.1f} points with both and {own - seen:.1f} without"

    wide = [measured(*runs("ablation_margins", f"t0_4_c{margin}"), ACCURACY) for margin in ("0_01", "0_05", "0_1")]
    yield f"takes the figure down to {min(wide):.2f} to {max(wide):.2f} %"

    without, single = (told(runs("ablation_threshold", row)) for row in ("ring", "epsilon_8_0"))
    yield f"in place of COS ` has {without} %, with the paper's ε of 8 it has {single}, with its own of 4 {both:.2f}"
    yield f"the paper has {printed('table-6', 'ring')} and, for 8, {printed('table-6', 'epsilon_8_0')}"
    rows = [name for _, name, *_ in paper_tables()["table-6"].rows if name.startswith("epsilon")]
    ours = [measured(*runs("ablation_threshold", row), ACCURACY) for row in rows]
    theirs = [float(printed("table-6", row).split("±")[0]) for row in rows]
    yield f"it has {min(ours):.2f} to {max(ours):.2f} %, the paper {min(theirs):.2f} to {max(theirs):.2f}"
    gains = [value - measured(*runs("ablation_threshold", "ring"), ACCURACY) for value in ours]
    yield f"COS gains {min(gains):.1f} to {max(gains):.1f} points here too"


def told_in_methods() -> Iterator[str]:
    memory = (RESULTS / "memory_permuted_mnist.md").read_text()
    kept = {
        row: list(map(float, rest))
        for row, *rest in re.findall(r"^\| (\w+)" + r" \| ([\d.]+)" * 7, memory, re.MULTILINE)
    }
    (_, _, samples_mdmt_r, features_mdmt_r, *_), (_, step, samples, features, *_) = kept["mdmt_r"], kept["drr"]
    yield f"they take {features_mdmt_r:.1f} MB for MDMT-R and {features:.1f} with DRR's centroids"
    yield f"the samples themselves take {samples_mdmt_r:.1f} and {samples:.1f} and a step {step:.1f}"
    footprints = [result.footprint for result in ResultStore(RESULTS / "permuted_mnist" / "drr").results()]
    least, most = (1e-6 * choose(each.features for each in footprints) for choose in (min, max))
    (stored,) = {f"{1e-6 * each.samples:.1f}" for each in footprints}
    yield f"DRR keeps {least:.1f} to {most:.1f} MB of features beside {stored} MB of samples"
    bounded, free = (
        runs("tuning/permuted_mnist", "drr", "method.distillation=10", f"selection.max_centroids={most}")
        for most in (25, 2048)
    )
    yield f"A_3 on the tuning tasks was {told(bounded)} instead of {told(free)} %"
    small, large = (runs("tuning/soft_gem/permuted_mnist", "soft_gem", f"method.epsilon={e}") for e in (0.01, 0.1))
    yield f"{told(small)} % instead of {told(large)}"
    published = [float(printed("table-2", row).split("±")[0]) for row in ("finetune", "ewc", "mas", "rwalk")]
    yield f"({min(published):.1f} to {max(published):.1f} %)"
    yield f"({told(runs('five_tasks/split_cifar100', 'mer'), LEARNED, 1)} % when a task is over"
    yield f"and after 17 tasks ({told(runs('split_cifar100', 'der'))} %)"
    both = told(runs("split_cifar100", "der_plus_plus"))
    yield f"{both} % after 17 tasks (seed 1234), where the paper has {printed('table-2', 'der')} for DER"
    at_random = told(runs("split_cifar100", "er", "selection=reservoir"))
    yield f"plain replay from a reservoir has {at_random} here, further from it (same seed)"
    strong, weak = (told(runs("tuning/turned", "der", f"method.logit_weight={w}"), digits=1) for w in (50, 5))
    yield f"50 instead of 5 gave {strong} against {weak} %"


def told_in_trials() -> Iterator[str]:
    several, single, reservoir, before = (
        on_the_way("tuning/turned_12", "drr", f"backbone.initialisation={begun}", *settings)
        for begun, *settings in (
            ("agem", "selection.epsilon=4", "method.distillation=3"),
            ("agem", "selection.epsilon=8"),
            ("agem", "selection=reservoir"),
            ("torch", "selection=reservoir", "method.distillation=3"),
        )
    )
    averaged = on_the_way("tuning/turned_12", "er_average")
    yield f"in the mean over A_4 to A_12: {several} %, where ε = 8 with a distillation of 10 has {single}"
    yield f"and a reservoir {reservoir}, with the same initialisation; a reservoir with torch's {before}"
    yield f"averaged replay {averaged}"
    with_several = ("backbone.initialisation=agem", "selection.epsilon=4")
    middle, strong, longer = (
        on_the_way("tuning/turned_12", "drr", *with_several, f"method.distillation={weight}", f"method.average={decay}")
        for weight, decay in ((5, 0.99), (10, 0.99), (5, 0.995))
    )
    yield f"5 has {middle} % and 10 has {strong}, where 3 has {several}"
    yield f"forgets least when it counts how long (LTR) and has {longer}"
    (plain,) = {on_the_way("tuning/initialisation", "er", f"backbone.initialisation={i}") for i in ("agem", "torch")}
    yield f"both have {plain} %)"


TOLD: dict[str, Callable[[], Iterator[str]]] = {
    "README": told_in_the_readme,
    "drr": told_in_drr,
    "measured": told_in_measured,
    "methods": told_in_methods,
    "trials": told_in_trials,
}
