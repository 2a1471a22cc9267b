"""The page in a real browser, opened from disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.experiments.probes.record import RECORD
from holdfast.experiments.recipes import load_recipe
from holdfast.experiments.results import ResultStore
from holdfast.experiments.run import run
from holdfast.report.html_page import html_page
from holdfast.report.page_data import Data, page_data
from holdfast.settings import Part
from tests.support.browser import CHROMIUM, DRIVER, Browser, browser
from tests.support.made_up_results import hostile_results, result, store

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="no chromium and chromedriver: install Debian's packages chromium, chromium-driver",
)

CURVES = "document.querySelectorAll('.card:first-child .series')"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods with a record and two seeds, all tasks at once, and another benchmark."""
    folder = tmp_path_factory.mktemp("runs")
    small = {"stream.n_tasks": 3, "stream.samples_per_task": 60}
    recipe = load_recipe("split_digits")
    for row, seed in (("er", 1), ("er", 2), ("finetune", 1), ("joint", 1)):
        run(recipe.experiment(row, seed=seed, changes=small), ResultStore(folder), record=True)
    store(folder, "permuted_digits", "er", {1: 0.5})
    return written(folder)


@pytest.fixture(scope="module")
def methods(page: Path) -> list[Data]:
    """What is stored of split_digits."""
    return page_data(page.parent, base=Path())["sections"][1]["methods"]


def written(folder: Path) -> Path:
    path = folder / "index.html"
    path.write_text(html_page(page_data(folder, base=folder)))
    return path


def test_it_opens_without_a_word_in_the_console_and_fetches_nothing(chromium, page):
    chromium.messages()
    chromium.open(page)
    assert chromium.messages() == []
    assert chromium.run("return [...document.querySelectorAll('h2')].map(h => h.textContent)") == [
        "permuted_digits",
        "split_digits",
    ]
    fetched = chromium.run("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in fetched if not name.startswith("data:")] == []


def test_every_card_has_something_drawn(chromium, page):
    chromium.open(page)
    drawn = chromium.run(
        "return [...document.querySelectorAll('#section-1 .card')].map(c =>"
        " [c.querySelector('h3').textContent, c.querySelectorAll('.chart path, .chart rect, .chart circle').length])"
    )
    assert dict(drawn).keys() >= {"Average accuracy A_t", "Accuracy matrix", "Learning accuracy"}
    assert dict(drawn).keys() >= {"Cost against accuracy", "How far features have moved", "How far tasks are apart"}
    assert dict(drawn).keys() >= {"Drift map of the first task", "What is in the memory"}
    assert all(n > 0 for _, n in drawn)
    assert "NaN" not in chromium.run("return document.body.outerHTML.replace(/<script[^]*?<\\/script>/g, '')")


def test_switching_a_method_off_removes_its_curves_everywhere_and_on_brings_them_back(chromium, page):
    chromium.open(page)
    switch = "document.querySelector('#section-1 .legend button[data-label=er]')"
    curves = "return document.querySelectorAll('.series[data-method=er]').length"
    others = "return document.querySelectorAll('.series[data-method=finetune]').length"
    before, before_others = chromium.run(curves), chromium.run(others)
    assert before >= 8  # in both sections
    chromium.run(f"{switch}.click()")
    assert chromium.run(curves) == 0
    assert chromium.run("return document.querySelectorAll('.map[data-method=er]').length") == 0
    assert chromium.run(others) == before_others
    assert chromium.run(f"return {switch}.getAttribute('aria-pressed')") == "false"
    chromium.run(f"{switch}.click()")
    assert chromium.run(curves) == before


@pytest.mark.parametrize("prefers_dark", [False, True])
def test_the_switch_turns_the_colours_over(chromium, page, prefers_dark):
    chromium.open(page, dark=prefers_dark)
    chromium.run("localStorage.clear()")
    chromium.open(page, dark=prefers_dark)
    ground = "return getComputedStyle(document.documentElement).backgroundColor"
    light, dark = "rgb(255, 255, 255)", "rgb(20, 24, 29)"
    assert chromium.run(ground) == (dark if prefers_dark else light)
    chromium.run("document.getElementById('theme').click()")
    assert chromium.run(ground) == (light if prefers_dark else dark)
    chromium.open(page, dark=prefers_dark)  # it is remembered
    assert chromium.run(ground) == (light if prefers_dark else dark)
    chromium.run("localStorage.clear()")


def test_pointing_at_a_chart_tells_the_numbers(chromium, page, methods):
    chromium.open(page)
    told = chromium.run("""
        const svg = document.querySelector('#section-1 .card svg[role=img]');
        const box = svg.getBoundingClientRect();
        const at = { clientX: box.right - 15, clientY: box.top + 20, bubbles: true };
        svg.dispatchEvent(new PointerEvent('pointermove', at));
        const tip = document.getElementById('tip');
        return [getComputedStyle(tip).visibility, tip.innerText];
    """)
    (method,) = (method for method in methods if method["label"] == "er")
    mean, deviation = (100 * method["curves"]["average"][name][-1] for name in ("mean", "deviation"))
    assert told[0] == "visible"
    assert "after 3 tasks" in told[1]
    assert f"{mean:.1f} ± {deviation:.1f}" in told[1]


def test_the_matrix_is_that_of_the_method_and_seed_chosen(chromium, page, methods):
    chromium.open(page)
    texts = """
        const card = document.querySelector('#section-1 [data-chart=matrix]');
        const [method, seed] = card.querySelectorAll('select');
        for (const [select, value] of [[method, %s], [seed, %s]]) {
          select.value = value;
          select.dispatchEvent(new Event('change'));
        }
        return [...card.querySelectorAll('.cell text')].map(t => t.textContent);
    """
    for i, method in enumerate(methods):
        for j, each in enumerate(method["runs"]):
            expected = [f"{100 * a:.1f}" for row in each["accuracies"] for a in row if a is not None]
            assert chromium.run(texts % (f"'{i}'", f"'{j}'")) == expected


def test_the_slider_moves_the_samples_to_where_they_are_after_a_task(chromium, page, methods):
    pytest.importorskip("openTSNE", reason="openTSNE is not installed")
    chromium.open(page)
    places = """
        const slider = document.querySelector('.player input');
        slider.value = %d;
        slider.dispatchEvent(new Event('input'));
        return [...document.querySelectorAll('.map[data-method=er] circle')].map(c => c.style.transform);
    """
    (method,) = (method for method in methods if method["label"] == "er")
    for task in (3, 1):
        expected = [f"translate({x}px, {1000 - y}px)" for x, y in method["record"]["map"]["places"][task - 1]]
        assert chromium.run(places % task) == expected


def test_the_table_sorts_by_a_column(chromium, page):
    chromium.open(page)
    order = """
        document.querySelectorAll('#section-1 th button')[1].click();
        const cells = document.querySelectorAll('#section-1 tr[data-label] td:nth-child(2)');
        return [...cells].map(cell => parseFloat(cell.textContent));
    """
    falling = chromium.run(order)
    assert falling == sorted(falling, reverse=True)
    assert chromium.run(order) == falling[::-1]


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_sticks_out_of_the_window(chromium, page, width):
    chromium.open(page, width=width)
    assert chromium.run("return document.documentElement.scrollWidth") <= width


def test_it_prints_on_white_paper_even_if_the_screen_is_dark(chromium, page, tmp_path):
    chromium.open(page, dark=True)
    chromium.devtools("Emulation.setEmulatedMedia", {"media": "print"})
    assert chromium.run("return getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert chromium.run("return getComputedStyle(document.getElementById('theme')).display") == "none"
    chromium.devtools("Emulation.setEmulatedMedia", {"media": ""})
    chromium.print(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six protocols of one benchmark."""
    folder = tmp_path_factory.mktemp("many")
    for n_tasks in range(2, 8):
        recipe = load_recipe("permuted_digits")
        for row in ("er", "agem"):
            experiment = recipe.experiment(row, seed=1, changes={"stream.n_tasks": n_tasks})
            (folder / experiment.path).mkdir(parents=True)
            ResultStore(folder).save(result(experiment, 0.5, n_tasks=n_tasks))
    return written(folder)


def test_many_sections_are_closed_and_made_when_they_are_opened(chromium, many):
    chromium.open(many)
    assert chromium.messages() == []
    assert chromium.run("return [...document.querySelectorAll('.section')].map(s => s.open)") == [False] * 6
    assert chromium.run("return document.querySelectorAll('.card').length") == 0
    chromium.run("openSection(2); return 0")
    assert chromium.run("return document.querySelectorAll('#section-2 .card .chart svg').length") >= 3
    assert chromium.run("return document.querySelectorAll('.section:not(#section-2) .card').length") == 0


def test_a_word_that_is_typed_leaves_the_sections_that_have_it(chromium, many):
    chromium.open(many)
    typed = """
        const input = document.getElementById('search');
        input.value = '%s';
        input.dispatchEvent(new Event('input'));
        const shown = [...document.querySelectorAll('.section')].filter(s => !s.hidden);
        return shown.map(s => s.querySelector('h2').textContent);
    """
    assert chromium.run(typed % "5 tasks AGEM") == ["permuted_digits – 5 tasks"]
    assert chromium.run(typed % "nothing such") == []
    assert len(chromium.run(typed % "")) == 6


def test_settings_of_two_runs_stand_side_by_side_those_that_differ_first(chromium, page):
    chromium.open(page)
    lines = chromium.run("""
        const folds = [...document.querySelectorAll('#section-1 details.fold')];
        const fold = folds.find(f => f.textContent.startsWith('Settings'));
        fold.open = true;
        const [one, other] = fold.querySelectorAll('select');
        const pick = (select, text) => {
          select.value = [...select.options].find(o => o.textContent === text).value;
          select.dispatchEvent(new Event('change'));
        };
        pick(one, 'er, seed 1');
        pick(other, 'finetune, seed 1');
        return [...fold.querySelectorAll('tbody tr')].map(r => [r.className, ...[...r.cells].map(c => c.textContent)]);
    """)
    differing = [line for line in lines if line[0] == "differs"]
    assert lines[: len(differing)] == differing
    assert ["differs", "method", "er", "finetune"] in lines
    assert ["", "seed", "1", "1"] in lines
    commands = chromium.run("return [...document.querySelectorAll('#section-1 code')].map(c => c.textContent)")
    assert all(command.startswith("holdfast remake ") for command in commands)


def test_no_tooltip_says_null(chromium, page):
    chromium.open(page)
    told = chromium.run("""
        const tips = [];
        for (const svg of document.querySelectorAll('#section-1 .card svg[role=img]')) {
          for (const part of [svg, ...svg.querySelectorAll('.series, .cell, .bar')]) {
            const box = part.getBoundingClientRect();
            const at = { clientX: box.right - 5, clientY: box.top + 5, bubbles: true };
            part.dispatchEvent(new PointerEvent('pointermove', at));
            tips.push(document.getElementById('tip').innerText);
          }
        }
        return tips;
    """)
    assert len(told) > 10
    assert not [text for text in told if "null" in text or "undefined" in text]


def test_names_that_mean_harm_are_shown_and_do_none(chromium, tmp_path):
    names = hostile_results(tmp_path)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / RECORD).write_bytes(b"")
    chromium.messages()
    chromium.open(written(tmp_path))
    assert chromium.messages() == []
    assert chromium.run("return window.hacked ?? null") is None
    assert chromium.run("return document.querySelectorAll('img, b, body > script:not(#data) ~ script').length") == 0
    labels = chromium.run("return [...document.querySelectorAll('.legend button[data-label]')].map(b => b.textContent)")
    assert set(labels) == set(names)
    assert "Passed over:" in chromium.run("return document.querySelector('.problems').textContent")
    assert "<script>window.hacked = 1<" in chromium.run("return document.querySelector('.problems').textContent")


def test_no_results_are_one_sentence(chromium, tmp_path):
    chromium.open(written(tmp_path))
    assert chromium.messages() == []
    assert "There are no results of finished runs" in chromium.run("return document.body.innerText")
    assert chromium.run("return document.querySelectorAll('section, svg').length") == 0


@pytest.mark.parametrize("n_methods", [1, 60])
def test_one_method_and_sixty_are_drawn_with_looks_of_their_own(chromium, tmp_path, n_methods):
    recipe = load_recipe("permuted_digits")
    for i in range(n_methods):
        for seed in (1, 2):
            experiment = recipe.experiment("er", seed=seed).model_copy(update={"row": f"method_{i:02d}"})
            made = result(experiment, 0.3 + 0.01 * i + 0.01 * seed, n_tasks=5)
            (tmp_path / experiment.path).mkdir(parents=True)
            ResultStore(tmp_path).save(made)
    chromium.open(written(tmp_path))
    assert chromium.messages() == []
    looks = chromium.run(
        f"return [...{CURVES}].map(g => [g.querySelector('.curve').getAttribute('stroke'),"
        " g.querySelector('.curve').getAttribute('stroke-dasharray')].join())"
    )
    assert len(looks) == len(set(looks)) == n_methods
    assert chromium.run("return document.documentElement.scrollWidth") <= 1280


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods whose probes measured while they learned, and one without."""
    folder = tmp_path_factory.mktemp("probed")
    recipe = load_recipe("split_digits")
    probes = (
        Part(name="curve", options={"every": 2}),
        Part(name="prequential", options={"every": 2}),
        Part(name="confusion"),
    )
    for row, wanted in (("er", probes), ("finetune", probes), ("agem", ())):
        changes = {"stream.n_tasks": 2, "stream.samples_per_task": 60}
        run(recipe.experiment(row, seed=1, changes=changes), ResultStore(folder), probes=wanted)
    return written(folder)


def chosen(chromium: Browser, chart: str, value: str) -> None:
    chromium.run(f"""
        const select = document.querySelector('[data-chart={chart}] select');
        select.value = '{value}';
        select.dispatchEvent(new Event('change'));
    """)


@pytest.mark.parametrize("name", ["seen", "loss", "prequential"])
def test_what_probes_measured_along_the_stream_is_drawn_with_its_numbers(chromium, probed, name):
    (section,) = page_data(probed.parent, base=Path())["sections"]
    (er,) = (method["learning"][name] for method in section["methods"] if method["label"] == "er")
    chromium.messages()
    chromium.open(probed)
    chosen(chromium, "learning", name)
    drawn = "return [...document.querySelectorAll('[data-chart=learning] .series')].map(g => g.dataset.method)"
    assert chromium.run(drawn) == ["er", "finetune"]
    told = chromium.run("""
        const svg = document.querySelector('[data-chart=learning] svg[role=img]');
        const box = svg.getBoundingClientRect();
        const at = { clientX: box.right - 12, clientY: box.top + 20, bubbles: true };
        svg.dispatchEvent(new PointerEvent('pointermove', at));
        return document.getElementById('tip').innerText;
    """)
    last = er["mean"][-1]
    assert f"{er['at'][-1]:,} {'batches' if name == 'prequential' else 'samples'} learned" in told
    assert (f"{last:.3g}" if name == "loss" else f"{100 * last:.1f}") in told
    assert chromium.messages() == []


def test_classes_and_their_confusions_are_drawn_as_they_were_counted(chromium, probed):
    (section,) = page_data(probed.parent, base=Path())["sections"]
    (er,) = (method for method in section["methods"] if method["label"] == "er")
    totals = {}
    for y, _, n in er["runs"][0]["confusion"]:
        totals[y] = totals.get(y, 0) + n
    chromium.open(probed)
    chosen(chromium, "confusion", "0")
    texts = "return [...document.querySelectorAll('[data-chart=%s] .cell text')].map(t => t.textContent)"
    methods = [method["label"] for method in section["methods"]]
    first = methods.index("er") < methods.index("finetune")
    chosen(chromium, "confusion", "0" if first else "1")
    found = [int(text) for text in chromium.run(texts % "confusion")]
    assert found == pytest.approx([100 * n / totals[y] for y, _, n in er["runs"][0]["confusion"]], abs=0.51)
    by_class = [int(text) for text in chromium.run(texts % "classes")]
    accuracies = list(er["by_class"]["accuracies"].values())
    own = by_class[: len(accuracies)] if first else by_class[-len(accuracies) :]
    assert own == pytest.approx([100 * a for a in accuracies], abs=0.51)
    assert set(er["by_class"]["accuracies"]) == {str(y) for y in totals}


def test_confusions_of_very_many_classes_are_listed(chromium, probed):
    chromium.open(probed)
    lines = chromium.run("""
        const host = document.createElement('div');
        const counts = [];
        for (let y = 0; y < 60; y++) counts.push([y, y, 9], [y, (y + 1) % 60, y === 7 ? 5 : 1]);
        drawConfusion(host, 'er', counts);
        return [...host.querySelectorAll('tbody tr')].map(r => [...r.cells].map(c => c.textContent));
    """)
    assert len(lines) == 20
    assert lines[0] == ["7", "8", "35.7 %", "5"]


def test_a_run_without_such_probes_has_no_such_cards(chromium, page):
    chromium.open(page)
    assert chromium.run("return document.querySelectorAll('[data-chart=learning], [data-chart=confusion]').length") == 0
    assert chromium.run("return document.querySelectorAll('[data-chart=classes]').length") == 0


def test_a_word_shows_its_meaning_where_it_stands(chromium, page):
    chromium.open(page)
    told = chromium.run("""
        const words = [...document.querySelectorAll('#section-1 .word')];
        return words.map(word => {
          word.dispatchEvent(new PointerEvent('pointerenter'));
          const tip = document.getElementById('tip');
          const shown = [word.textContent, tip.innerText, getComputedStyle(tip).visibility];
          word.dispatchEvent(new PointerEvent('pointerleave'));
          return [...shown, getComputedStyle(tip).visibility];
        });
    """)
    words = {word: rest for word, *rest in told}
    assert words["F_T"][0].startswith("Forgetting:")
    assert words["learned (%)"][0].startswith("Learning accuracy:")
    assert all(states == ["visible", "hidden"] for _, *states in words.values())
    assert "Setting class: task known when learning only" in chromium.run("return document.body.innerText")


def test_methods_are_filtered_by_what_is_typed_and_the_best_by_a_button(chromium, tmp_path):
    recipe = load_recipe("permuted_digits")
    for i in range(20):
        experiment = recipe.experiment("er", seed=1).model_copy(update={"row": f"method_{i:02d}"})
        (tmp_path / experiment.path).mkdir(parents=True)
        ResultStore(tmp_path).save(result(experiment, 0.3 + 0.01 * i, n_tasks=3))
    chromium.open(written(tmp_path))
    drawn = f"return [...{CURVES}].map(g => g.dataset.method)"
    chromium.run("""
        const input = document.querySelector('.legend input');
        input.value = 'METHOD_1';
        input.dispatchEvent(new Event('input'));
    """)
    assert chromium.run(drawn) == [f"method_{i}" for i in range(10, 20)]
    chromium.run("[...document.querySelectorAll('.legend button')].find(b => b.textContent === 'best 8').click()")
    assert sorted(chromium.run(drawn)) == [f"method_{i}" for i in range(12, 20)]
    assert "highest A_T" in chromium.run("return document.querySelector('.section summary').innerText")
