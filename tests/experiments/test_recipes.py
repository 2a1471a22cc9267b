from pathlib import Path

import pytest

from holdfast.experiments.differences import differences
from holdfast.experiments.recipes import load_recipe, parse_changes, recipe_names
from holdfast.parts import Unknown, names
from holdfast.settings import Part, options_of, resolved


def with_defaults(method, **said):
    return {**options_of("methods", method), **said}


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_makes_every_row_and_any_method(name):
    recipe = load_recipe(name)
    for row in [*recipe.rows, *recipe.compare, *names("methods")]:
        experiment = recipe.experiment(row)
        assert (experiment.benchmark, experiment.row) == (name, row)


@pytest.mark.parametrize(
    ("name", "finetune_lr", "er_lr", "memory", "replay_size"),
    [
        ("permuted_mnist", 0.03, 0.1, 4250, 256),
        ("split_cifar100", 0.01, 0.03, 1105, 256),
        ("split_cub", 0.03, 0.03, 850, 128),
        ("split_awa", 0.001, 0.01, 1700, 128),
    ],
)
def test_the_papers_recipes_hold_the_protocols_values(name, finetune_lr, er_lr, memory, replay_size):
    recipe = load_recipe(name)
    finetune, er = recipe.experiment("finetune"), recipe.experiment("er")
    assert (finetune.lr, er.lr) == (finetune_lr, er_lr)
    assert (er.memory, er.batch_size, er.retrieval.name) == (memory, 10, "old_tasks")
    assert er.method.options["replay_size"] == replay_size


def test_a_stream_without_a_recipe_can_be_named(monkeypatch):
    monkeypatch.setattr("holdfast.experiments.recipes.recipe_names", list)
    monkeypatch.setattr("holdfast.experiments.recipes._folder", lambda: Path("nowhere"))
    assert load_recipe("split_digits").experiment("er").stream.name == "split_digits"


def test_a_row_changes_fields_and_options_of_its_method(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('stream = "split_digits"\nlr = 0.5\n[rows.mine]\nmethod = "er"\nreplay_size = 7\nlr = 0.25\n')
    experiment = load_recipe(str(path)).experiment("mine", seed=3)
    assert (experiment.row, experiment.method.name, experiment.method.options) == (
        "mine",
        "er",
        with_defaults("er", replay_size=7),
    )
    assert (experiment.lr, experiment.seed, experiment.benchmark) == (0.25, 3, "mine")


def test_changes_reach_fields_and_options():
    changes = parse_changes(
        ["lr=0.5", "method.replay_size=3", "stream.n_tasks=2", "memory=5 MB", "selection=reservoir"]
    )
    experiment = load_recipe("permuted_digits").experiment("er", changes=changes)
    assert (experiment.lr, experiment.memory, experiment.selection.name) == (0.5, "5 MB", "reservoir")
    assert experiment.method.options["replay_size"] == 3
    assert experiment.stream.options == {**options_of("streams", "permuted_digits"), "n_tasks": 2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("lrr=1", "no 'lrr'.*did you mean 'lr'"),
        ("method.replay=1", "no 'replay' in the options of 'er'.*replay_size"),
        ("stream.ntasks=1", "no 'ntasks' in the options of 'permuted_digits'.*n_tasks"),
        ("seed.x=1", "'seed' has no options"),
        ("lr=-1", "lr: .*greater than 0"),
        ("memory=lots", "'lots' is no size"),
        ("memory=0", "holds nothing"),
        ("selection=rign", "no 'rign' in selections: did you mean 'ring'"),
        ("setting=tsk", "setting"),
        ("no sense", "write name=value"),
    ],
)
def test_a_change_that_makes_no_sense_says_what_would(change, message):
    with pytest.raises(Unknown, match=message):
        load_recipe("permuted_digits").experiment("er", changes=parse_changes([change]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("stream = ", "is no TOML"),
        ('steam = "split_digits"', "no 'steam'.*did you mean 'stream'"),
        ('stream = "split_digits"\n[rows.er]\nreplay_sizes = 3', "did you mean 'replay_size'"),
        ("lr = 0.1", "stream: Field required"),
    ],
)
def test_a_bad_recipe_file_is_a_clear_error(tmp_path, content, message):
    path = tmp_path / "bad.toml"
    path.write_text(content)
    with pytest.raises(Unknown, match=message):
        load_recipe(str(path)).experiment("er")


def test_names_that_are_not_there_suggest_the_nearest():
    with pytest.raises(Unknown, match="did you mean 'permuted_mnist'"):
        load_recipe("permuted_minst")
    with pytest.raises(Unknown, match="did you mean 'finetune'"):
        load_recipe("permuted_mnist").experiment("fine_tune")
    with pytest.raises(Unknown, match="no recipe at"):
        load_recipe("not/there.toml")


def test_the_ablation_of_margins_has_the_papers_ten_rows_and_drr():
    recipe = load_recipe("ablation_margins")
    options = [recipe.experiment(row).method.options for row in recipe.rows]
    found = [(o["task_margin"], o["class_margin"], o["distillation"] > 0, o["old_against"]) for o in options]
    assert found == [
        (0.0, 0.0, False, "task"),
        (0.0, 0.0, True, "task"),
        (0.0, 0.0, False, "seen"),
        (0.1, 0.0, False, "seen"),
        (0.0, 0.01, False, "seen"),
        (0.1, 0.01, False, "seen"),
        (0.4, 0.01, False, "seen"),
        (0.4, 0.05, False, "seen"),
        (0.4, 0.1, False, "seen"),
        (0.1, 0.01, True, "seen"),
        (0.1, 0.01, True, "task"),
    ]


def test_the_ablation_of_the_threshold_has_the_papers_seven_rows_and_that_of_drr():
    recipe = load_recipe("ablation_threshold")
    selections = [recipe.experiment(row).selection for row in recipe.rows]
    assert [s.options.get("epsilon") for s in selections] == [None, 6.0, 6.5, 7.0, 7.5, 8.0, 8.5, 4.0]
    assert selections[0].name == "ring"


@pytest.mark.parametrize("size", ["full", "cpu"])
def test_the_ablations_differ_from_drr_in_what_they_ablate_alone(size):
    drr = load_recipe("split_cifar100").sized(size).experiment("drr")
    margins, threshold = (load_recipe(f"ablation_{name}").sized(size) for name in ("margins", "threshold"))
    assert not differences(margins.experiment("drr"), drr)
    assert not differences(threshold.experiment("epsilon_4_0"), drr)
    assert differences(margins.experiment("t0_1_c0_01_cdl"), drr) == {"method.old_against": ("seen", "task")}
    assert differences(threshold.experiment("epsilon_8_0"), drr) == {"selection.epsilon": ("8", "4")}


def test_a_method_of_all_rows_is_not_that_of_a_method_that_is_asked_for(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('stream = "split_digits"\n[method]\nname = "drr"\nlogit_scale = 5.0\n[rows.a]\ntask_margin = 0.2\n')
    recipe = load_recipe(str(path))
    said = Part(name="drr", options={"logit_scale": 5.0, "task_margin": 0.2})
    assert recipe.experiment("a").method == resolved("methods", said)
    assert recipe.experiment("er").method == resolved("methods", Part(name="er"))


SIZED = """
stream = "split_digits"
seeds = [1, 2, 3]
[cpu]
seeds = [1]
replay_size = 8
memory = 50
[rows.finetune]
[rows.er]
replay_size = 64
memory = 100
[rows.few]
method = "er"
[cpu.rows.few]
replay_size = 4
"""


def test_a_size_changes_fields_of_all_rows_and_options_where_the_method_has_them(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(SIZED)
    full, cpu = load_recipe(str(path)).sized("full"), load_recipe(str(path)).sized("cpu")
    assert (full.seeds, cpu.seeds) == ((1, 2, 3), (1,))
    assert full.experiment("er").method.options["replay_size"] == 64
    assert [cpu.experiment(row).method.options.get("replay_size") for row in cpu.rows] == [None, 8, 4]
    assert [cpu.experiment(row).memory for row in cpu.rows] == [50, 50, 50]
    assert cpu.experiment("er").row == full.experiment("er").row == "er"


def test_a_size_changes_methods_without_a_row_too(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(SIZED)
    full, cpu = load_recipe(str(path)).sized("full"), load_recipe(str(path)).sized("cpu")
    assert (cpu.experiment("agem").method.options["replay_size"], cpu.experiment("agem").memory) == (8, 50)
    assert (cpu.experiment("ewc").method.options, cpu.experiment("ewc").memory) == (with_defaults("ewc"), 50)
    assert full.experiment("agem").method.options == with_defaults("agem")
    assert full.experiment("agem").memory == full.experiment("few").memory


def test_a_recipe_without_sizes_is_the_same_in_all():
    recipe = load_recipe("split_digits")
    assert recipe.sized("cpu") == recipe.sized("full") == recipe
    assert recipe.seeds == (1234,)


def test_another_recipe_can_stand_for_one_on_a_cpu():
    recipe = load_recipe("split_awa")
    cpu = recipe.sized("cpu")
    assert (cpu.name, cpu.rows) == ("split_awa_features", load_recipe("split_awa_features").rows)
    assert (cpu.seeds, recipe.sized("full").seeds) == ((1234, 1235, 1236), (1234, 1235, 1236, 1237, 1238))
    assert cpu.experiment("er").stream.options["source"] == "features"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[cpu]\nrecipe = 'split_digits'\nlr = 0.1", "names a recipe, so lr can only stand there"),
        ("[cpu]\nrecipe = 'split_digit'", "did you mean 'split_digits'"),
        ("[cpu]\nrecipe = 'split_awa'", "'split_awa', for which another stands itself"),
        ("[cpu]\nreplay_sizes = 3\n[rows.er]", "changes replay_sizes, which no row of it has"),
        ("[cpu.rows.err]\nreplay_size = 3\n[rows.er]", "did you mean 'er'"),
        ("seeds = 3", "seeds = 3: give a list of whole numbers"),
        ("[cpu]\nseeds = []", r"seeds of \[cpu\] = \[\]: give a list"),
    ],
)
def test_a_size_that_makes_no_sense_is_a_clear_error(tmp_path, content, message):
    path = tmp_path / "bad.toml"
    path.write_text(f'stream = "split_digits"\n{content}\n')
    with pytest.raises(Unknown, match=message):
        load_recipe(str(path)).sized("cpu")
    with pytest.raises(Unknown, match="did you mean 'cpu'"):
        load_recipe("split_digits").sized("cpi")


@pytest.mark.parametrize("name", ["split_cifar100", "ablation_margins", "ablation_threshold", "sampling"])
def test_the_recipes_on_cifar_replay_less_on_a_cpu(name):
    recipe = load_recipe(name)
    assert recipe.seeds == (1234, 1235, 1236, 1237, 1238)
    cpu = recipe.sized("cpu")
    assert cpu.seeds == (1234,)
    replayed = {fields.get("replay_size") for fields in cpu.rows.values()}
    assert 32 in replayed
    assert 256 not in replayed


def recipe_of(folder, content):
    path = folder / "mine.toml"
    path.write_text(f'stream = "split_digits"\n{content}\n')
    return load_recipe(str(path))


@pytest.mark.parametrize("size", ["full", "cpu"])
@pytest.mark.parametrize("name", [name for name in recipe_names() if "er" in load_recipe(name).rows])
def test_a_method_without_a_row_replays_as_much_as_er_and_begins_as_it_does(name, size):
    recipe = load_recipe(name).sized(size)
    er, other = recipe.experiment("er"), recipe.experiment("er_ace")
    assert differences(other, er).keys() <= {"method"}
    assert other.method.options.get("replay_size") == er.method.options["replay_size"]


@pytest.mark.parametrize(
    ("rows", "shared"),
    [
        ("rows.er.replay_size = 32", {"replay_size": 32}),
        ("rows.er = {}\nrows.drr.replay_size = 10", {"replay_size": 10}),  # which is er's default
        ("rows.er.replay_size = 32\nrows.scr.replay_size = 32\nrows.mer.replay_size = 4", {"replay_size": 32}),
        ("rows.er.replay_size = 32\nrows.scr.replay_size = 64", {}),
        ("rows.er.replay_size = 32\nrows.few = { method = 'er' }", {}),
        ("rows.er.average = 0.9\nrows.drr.average = 0.9\nrows.finetune = {}", {"average": 0.9, "replay_size": 10}),
        ("rows.er = {}\nrows.averaged = { method = 'er', average = 0.9 }", {"replay_size": 10}),
        ("rows.er.replay_size = 1\nrows.drr = { distillation = 7.0, replay_size = 1 }", {"replay_size": 1}),
        ("rows.finetune = {}\nrows.joint = { method = 'er', stream = { name = 'joint', of = 'split_digits' } }", {}),
        ("rows.nothing_of_the_kind.replay_size = 5\nrows.er.replay_size = 6", {"replay_size": 6}),
        ("method = { name = 'drr', replay_size = 7, logit_scale = 2 }\nrows.a.task_margin = 0.1", {"replay_size": 7}),
        ("shared.replay_size = 5\nrows.er.replay_size = 6", {"replay_size": 5}),
        ("rows.er = { momentum = 0.1, lr = 0.5 }\nrows.drr = { momentum = 0.2, lr = 0.2 }", {"replay_size": 10}),
    ],
)  # fmt: skip
def test_what_rows_agree_on_goes_to_methods_without_a_row(tmp_path, rows, shared):
    assert recipe_of(tmp_path, rows).experiment("agem").method.options == with_defaults("agem", **shared)


def test_fields_that_all_rows_state_go_to_methods_without_a_row(tmp_path):
    fields = (
        "lr = 0.5, memory = 70, selection = { name = 'ring', per_class = 3 }, optimizer = 'adamw', backbone = 'mlp'"
    )
    recipe = recipe_of(tmp_path, f"rows.er = {{ {fields} }}\nrows.drr = {{ {fields} }}\nrows.finetune = {{ lr = 0.1 }}")
    assert differences(recipe.experiment("er_ace"), recipe.experiment("er")).keys() == {"method"}
    assert recipe.experiment("ewc").lr == recipe.experiment("finetune").lr
    assert recipe.experiment("ewc").memory != 70


def test_a_class_of_another_package_takes_what_is_shared_where_it_has_it(tmp_path, monkeypatch):
    (tmp_path / "my_own_rows.py").write_text(
        "from dataclasses import dataclass\n"
        "from holdfast.methods.er import ER\n"
        "from holdfast.methods.finetune import Finetune\n"
        "@dataclass(kw_only=True, eq=False)\n"
        "class Mine(ER):\n"
        "    strength: float = 1.0\n"
        "@dataclass(kw_only=True, eq=False)\n"
        "class Other(Finetune):\n"
        "    strength: float = 1.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    recipe = recipe_of(tmp_path, "selection = 'ring'\nrows.er.replay_size = 32\nrows.ewc.strength = 7.0")
    mine, other = recipe.experiment("my_own_rows:Mine"), recipe.experiment("my_own_rows:Other")
    assert mine.method.options == with_defaults("my_own_rows:Mine", replay_size=32)
    assert mine.selection.name == "ring"
    assert other.method.options == with_defaults("my_own_rows:Other")


def test_rows_take_what_is_shared_and_keep_what_they_say(tmp_path):
    recipe = recipe_of(
        tmp_path,
        "shared = { replay_size = 5, average = 0.9 }\ncpu.replay_size = 2\ncpu.rows.many.replay_size = 8\n"
        "rows.er = {}\nrows.many = { replay_size = 6, method = 'er' }\nrows.finetune = {}",
    )
    options = {row: recipe.experiment(row).method.options for row in [*recipe.rows, "scr"]}
    assert options == {
        "er": with_defaults("er", replay_size=5, average=0.9),
        "many": with_defaults("er", replay_size=6, average=0.9),
        "finetune": with_defaults("finetune", average=0.9),
        "scr": with_defaults("scr", replay_size=5, average=0.9),
    }
    sizes = {row: recipe.sized("cpu").experiment(row).method.options["replay_size"] for row in ("er", "many", "scr")}
    assert sizes == {"er": 2, "many": 8, "scr": 2}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("shared.replay_sise = 5", "did you mean 'replay_size'"),
        ("shared.lr = 0.1", r"\[shared\] holds options of methods: put lr at the top"),
    ],
)
def test_a_shared_value_that_makes_no_sense_is_a_clear_error(tmp_path, content, message):
    with pytest.raises(Unknown, match=message):
        recipe_of(tmp_path, content)
