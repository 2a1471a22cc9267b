from __future__ import annotations

import base64
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.core.checkpoint import checksum_of
from holdfast.learner import Learner
from holdfast.loading import load_learner
from holdfast.serve.hosted import Hosted
from holdfast.serve.limits import Limits
from holdfast.serve.shelf import Shelf
from holdfast.serve.tokens import Tokens
from holdfast.serve.wire import plain_scores
from tests.support.serving import SMALL, busy, serving, toy_batch

TOKENS = Tokens(
    [("observer-0123456789", ["observe"]), ("predictor-0123456789", ["predict"]), ("admin-0123456789", ["admin"])]
)


def observation(seed: int) -> dict[str, Any]:
    x, y = toy_batch(seed)
    return {"x": x, "y": y}


def bearer(token: str) -> dict[str, Any]:
    return {"headers": {"authorization": f"Bearer {token}"}}


def test_a_model_is_made_learns_and_predicts_like_a_learner(tmp_path: Path):
    learner = Learner(**SMALL)
    with serving(tmp_path) as ask:
        assert ask("PUT", "/models/toy", SMALL).status_code == 201
        for seed in range(5):
            x, y = toy_batch(seed)
            answer = ask("POST", "/models/toy/observe", {"x": x, "y": y})
            assert answer.json() == {"loss": learner.observe(x, y), "number": seed + 1, "n_observed": seed + 1}
        x, _ = toy_batch(9)
        answer = ask("POST", "/models/toy/predict", {"x": x, "scores": True, "top": 2}).json()
        scores = learner.scores(x)
        assert answer["labels"] == scores.argmax(dim=1).tolist()
        assert torch.equal(torch.tensor(answer["scores"]), scores)
        best = scores.topk(2, dim=1)
        assert [[each["label"] for each in row] for row in answer["top"]] == best.indices.tolist()
        assert answer["n_observed"] == 5
        assert ask("GET", "/health").json() == {"status": "ok", "models": 1, "failing": []}
        (described,) = ask("GET", "/models").json()["models"]
        assert described == ask("GET", "/models/toy").json()
        assert (described["n_observed"], described["n_samples"], described["input_shape"]) == (5, 20, [5])


def test_labels_are_of_any_kind_and_samples_may_be_unknown(tmp_path: Path):
    settings = {"method": "er", "memory": 30, "unknown": 0.05}
    learner = Learner(**settings)
    with serving(tmp_path) as ask:
        ask("PUT", "/models/toy", settings)
        for seed in range(20):
            x, y = toy_batch(seed)
            named = [["left", "right", "up"][c] for c in y]
            learner.observe(x, named)
            assert ask("POST", "/models/toy/observe", {"x": x, "y": named}).status_code == 200
        x = [*toy_batch(99)[0], [1000.0] * 5]
        answer = ask("POST", "/models/toy/predict", {"x": x, "proba": True, "decision": True, "top": 3}).json()
        assert answer["labels"] == learner.predict(x)
        assert answer["classes"] == learner.classes_
        assert torch.equal(torch.tensor(answer["proba"]), learner.predict_proba(x))
        assert [[each["label"] for each in row] for row in answer["top"]] == learner.predict(x, top=3)
        assert [each["is_unknown"] for each in answer["decisions"]] == [d.is_unknown for d in learner.decision(x)]
        by_class = ask("GET", "/models/toy/page").json()["classes"]
        assert {each["label"] for each in by_class} == {"left", "right", "up"}


def test_numbers_may_come_as_bytes(tmp_path: Path):
    x = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)
    packed = {"dtype": "uint8", "shape": list(x.shape), "data": base64.b64encode(x.tobytes()).decode()}
    learner = Learner(**SMALL)
    with serving(tmp_path) as ask:
        ask("PUT", "/models/toy", SMALL)
        answer = ask("POST", "/models/toy/observe", {"x": packed, "y": [0, 1]})
        assert answer.json()["loss"] == learner.observe(x, [0, 1])
        for given in (packed, x.tolist()):  # lists of whole numbers are bytes for a model that began with bytes
            answer = ask("POST", "/models/toy/predict", {"x": given, "scores": True})
            assert answer.json()["scores"] == plain_scores(learner.scores(x))
        pictures = ask("GET", "/models/toy/page").json()["pictures"]
        assert [group["label"] for group in pictures] == ["0", "1"]
        assert base64.b64decode(pictures[0]["png"][0]).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        ({"x": [[1, 2, 3, 4, 5]], "y": [99]}, 409, "label 99"),
        ({"x": [[1, 2, 3, 4, 5]], "y": [0, 1]}, 409, "y has 2 labels for 1 samples"),
        ({"x": [[1, 2, 3, 4, 5]], "y": ["cat"]}, 409, "label 'cat'"),
        ({"x": [[1, 2, 3, 4]], "y": [0]}, 409, "takes (n, 5)"),
        ({"x": [[1, 2], [3]], "y": [0, 1]}, 409, "cannot be read as one array"),
        ({"x": [[1e300, 2, 3, 4, 5]], "y": [0]}, 409, "absurdly large"),
        ({"x": [[1, 2, 3, 4, 5]], "y": [0], "task": 1}, 409, "does not know it"),
        ({"x": {"dtype": "float32", "shape": [1, 5], "data": "AAAA"}, "y": [0]}, 409, "needs 20"),
        ({"x": {"dtype": "float32", "shape": [1, 5], "data": "*"}, "y": [0]}, 409, "base64"),
        ({"x": [1, 2], "y": [0]}, 422, "arrays of numbers"),
        ({"x": [[True, 2]], "y": [0]}, 422, "arrays of numbers"),
        ({"x": [["1"]], "y": [0]}, 422, "arrays of numbers"),
        ({"x": [], "y": []}, 422, "1 to 10,000 samples"),
        ({"x": [[1, 2, 3, 4, 5]]}, 422, "y: Field required"),
        ({"x": [[1, 2, 3, 4, 5]], "y": [0], "extra": 1}, 422, "extra"),
    ],
)
def test_bad_input_is_answered_with_a_sentence_and_changes_nothing(tmp_path, given, status, said):
    with serving(tmp_path) as ask:
        ask("PUT", "/models/toy", SMALL)
        ask("POST", "/models/toy/observe", observation(1))
        before = ask("POST", "/models/toy/predict", {"x": toy_batch(5)[0], "scores": True}).json()
        answer = ask("POST", "/models/toy/observe", given)
        assert answer.status_code == status, answer.text
        assert said in answer.json()["detail"]
        assert ask("POST", "/models/toy/predict", {"x": toy_batch(5)[0], "scores": True}).json() == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 422),
        (b"\xff\xfe", 422),
        (b"[" * 100_000, 400),
        (b'{"x": [[1' + b"0" * 5000 + b']], "y": [0]}', 400),
        (b"", 422),
    ],
    ids=["cut short", "not text", "deep", "long number", "empty"],
)
def test_broken_json_is_answered(tmp_path: Path, body: bytes, status: int):
    with serving(tmp_path) as ask:
        ask("PUT", "/models/toy", SMALL)
        answer = ask("POST", "/models/toy/observe", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == status, answer.text
        assert isinstance(answer.json()["detail"], str)


def test_a_key_makes_an_observation_once(tmp_path: Path):
    key = {"headers": {"Idempotency-Key": "batch-7"}}
    with serving(tmp_path) as ask:
        ask("PUT", "/models/toy", SMALL)
        first = ask("POST", "/models/toy/observe", observation(1), **key)
        again = ask("POST", "/models/toy/observe", observation(1), **key)
        assert again.json() == first.json()
        assert (first.headers.get("Idempotency-Replayed"), again.headers["Idempotency-Replayed"]) == (None, "true")
        assert ask("POST", "/models/toy/observe", observation(2), **key).status_code == 409
    with serving(tmp_path) as ask:
        assert ask("POST", "/models/toy/observe", observation(1), **key).json() == first.json()
        assert ask("GET", "/models/toy").json()["n_observed"] == 1


def test_labels_may_come_later(tmp_path: Path):
    learner = Learner(**SMALL)
    learner.observe(*toy_batch(1))
    x, y = toy_batch(2)
    with serving(tmp_path) as ask:
        ask("PUT", "/models/toy", SMALL)
        ask("POST", "/models/toy/observe", observation(1))
        assert ask("POST", "/models/toy/predict", {"x": x, "ids": ["a", "b", "c", 4]}).status_code == 200
        answer = ask("POST", "/models/toy/label", {"ids": ["c", 4], "y": y[2:]})
        assert answer.json()["loss"] == learner.observe(x[2:], y[2:])
        for ids, said in ((["c"], "no input waits under 'c'"), (["a", "a"], "twice"), (["a", "b"], "2 ids for 1")):
            answer = ask("POST", "/models/toy/label", {"ids": ids, "y": [0] * (1 if "2" in said else len(ids))})
            assert answer.status_code == 409
            assert said in answer.json()["detail"]
        answer = ask("POST", "/models/toy/predict", {"x": x, "ids": ["a", "b"]})
        assert answer.status_code == 409


def test_weights_of_samples_reach_the_learner_also_after_a_crash(tmp_path: Path):
    learner = Learner(**SMALL)
    (x, y), (later, labels) = toy_batch(1), toy_batch(2)
    weights = [0.5, 0, 2, 1]
    losses = [learner.observe(x, y, sample_weight=weights), learner.observe(later, labels, sample_weight=weights[::-1])]
    with serving(tmp_path) as ask:
        ask("PUT", "/models/toy", SMALL)
        given = observation(1) | {"sample_weight": weights}
        assert ask("POST", "/models/toy/observe", given).json()["loss"] == losses[0]
        ask("POST", "/models/toy/predict", {"x": later, "ids": [1, 2, 3, 4]})
        given = {"ids": [1, 2, 3, 4], "y": labels, "sample_weight": weights[::-1]}
        assert ask("POST", "/models/toy/label", given).json()["loss"] == losses[1]
        assert ask("GET", "/models/toy").json()["n_samples"] == 6
        nothing = ask("POST", "/models/toy/observe", observation(3) | {"sample_weight": [0.0] * 4}).json()
        assert (nothing["loss"], nothing["n_observed"]) == (0.0, 2)
        for bad in ([1.0], [-1.0] * 4, ["heavy"] * 4):
            assert ask("POST", "/models/toy/observe", observation(1) | {"sample_weight": bad}).status_code in (409, 422)
        scores = ask("POST", "/models/toy/predict", {"x": x, "scores": True}).json()["scores"]
        assert torch.equal(torch.tensor(scores), learner.scores(x))
    with serving(tmp_path) as ask:
        assert ask("POST", "/models/toy/predict", {"x": x, "scores": True}).json()["scores"] == scores


def test_many_observations_at_once_are_all_learned(tmp_path: Path):
    with serving(tmp_path) as ask:
        ask("PUT", "/models/toy", SMALL)
        answers = ask.together([("POST", "/models/toy/observe", observation(seed)) for seed in range(30)])
        assert sorted(answer.json()["n_observed"] for answer in answers) == list(range(1, 31))


def test_settings_decide_the_learner_and_are_checked(tmp_path: Path):
    with serving(tmp_path) as ask:
        given = {"method": {"name": "er", "replay_size": 7}, "backbone": {"name": "mlp", "hidden": [8]}, "seed": 3}
        assert ask("PUT", "/models/a", given).json()["settings"]["method"]["replay_size"] == 7
        for wrong, status, said in [
            ({"method": "agme"}, 409, "did you mean 'agem'"),
            ({"method": {"name": "er", "replay": 1}}, 409, "replay"),
            ({"method": "os:system"}, 409, "code of another package"),
            ({"backbone": {"name": "evil:Net"}}, 409, "code of another package"),
            ({"memory": "many"}, 409, "many"),
            ({"lr": -1}, 422, "lr"),
            ({"metod": "er"}, 422, "metod"),
        ]:
            answer = ask("PUT", "/models/b", wrong)
            assert answer.status_code == status, answer.text
            assert said in answer.json()["detail"]
        assert ask("GET", "/health").json()["models"] == 1


def test_a_network_that_is_too_large_is_refused_before_it_is_made(tmp_path: Path):
    with serving(tmp_path) as ask:
        ask("PUT", "/models/a", {"backbone": {"name": "mlp", "hidden": [10**6, 10**6]}})
        answer = ask("POST", "/models/a/observe", observation(1))
        assert answer.status_code == 409
        assert "4,000,0" in answer.json()["detail"]


@pytest.mark.parametrize("settings", [{}, {"method": "slda", "backbone": "identity"}])
def test_sums_that_would_be_too_large_are_refused_before_they_are_made(tmp_path: Path, settings: dict[str, Any]):
    x = {"dtype": "uint8", "shape": [1, 20_000], "data": base64.b64encode(bytes(20_000)).decode()}
    with serving(tmp_path) as ask:
        ask("PUT", "/models/a", settings)
        answer = ask("POST", "/models/a/observe", {"x": x, "y": [0]})
        assert answer.status_code == 409
        assert "9,600,000,000 bytes" in answer.json()["detail"]


def test_a_model_that_has_learned_nothing_is_downloaded(tmp_path: Path):
    with serving(tmp_path / "models") as ask:
        ask("PUT", "/models/a", SMALL)
        answers = [ask("GET", "/models/a/file") for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200]
        (tmp_path / "file").write_bytes(answers[1].content)
        assert load_learner(tmp_path / "file").n_observed == 0


def test_a_model_that_is_deleted_while_it_is_saved_leaves_nothing(tmp_path: Path):
    shelf = Shelf(tmp_path)
    hosted = shelf.put("toy", Learner(**SMALL), replace=False)

    def until_closing(asked: Hosted) -> None:
        while not asked._closing:
            threading.Event().wait(0.001)

    hosted.ask(until_closing)
    saved = hosted.ask(Hosted.saved_bytes)
    shelf.delete("toy")
    assert saved.result()
    assert list(tmp_path.iterdir()) == []
    shelf.put("toy", Learner(**SMALL), replace=False)
    shelf.close()


def test_what_a_killed_server_left_of_an_upload_is_removed(tmp_path: Path):
    (tmp_path / ".new-upload").write_bytes(b"half of a model")
    (tmp_path / ".deleted-model").mkdir()
    with serving(tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_a_model_is_replaced_only_when_asked(tmp_path: Path):
    with serving(tmp_path) as ask:
        ask("PUT", "/models/a", SMALL)
        ask("POST", "/models/a/observe", observation(1))
        assert ask("PUT", "/models/a", SMALL).json()["n_observed"] == 1  # the same again
        assert ask("PUT", "/models/a", {**SMALL, "lr": 0.2}).status_code == 409
        assert ask("PUT", "/models/a?replace=true", {**SMALL, "lr": 0.2}).json()["n_observed"] == 0
        assert ask("DELETE", "/models/a").status_code == 204
        assert ask("DELETE", "/models/a").status_code == 404
        assert ask("POST", "/models/a/predict", {"x": [[1]]}).status_code == 404
    assert list(tmp_path.iterdir()) == []


def test_a_saved_learner_is_swapped_in_and_a_model_is_downloaded(tmp_path: Path):
    learner = Learner(**SMALL)
    learner.observe(*toy_batch(1))
    learner.save(tmp_path / "learner")
    with serving(tmp_path / "models") as ask:
        ask("PUT", "/models/a", SMALL)
        ask("POST", "/models/a/observe", observation(2))
        content = (tmp_path / "learner").read_bytes()
        assert ask("PUT", "/models/a/file", content=content).status_code == 200
        assert ask("PUT", "/models/new/file", content=content).status_code == 201
        for seed in (3, 4):
            ask("POST", "/models/a/observe", observation(seed))
            learner.observe(*toy_batch(seed))
        (tmp_path / "downloaded").write_bytes(ask("GET", "/models/a/file").content)
        answer = ask("PUT", "/models/a/file", content=b"nonsense")
        assert answer.status_code == 409
        assert str(tmp_path) not in answer.text
        assert ask("GET", "/models/a").json()["n_observed"] == 3
    downloaded = load_learner(tmp_path / "downloaded")
    assert checksum_of(downloaded.state_dict()) == checksum_of(learner.state_dict())


@pytest.mark.parametrize("name", ["..", "../x", "%2e%2e", "..%2fx", "a/b", "a%00", ".new-1", "a" * 65, "ä", "%2Fetc"])
def test_names_do_not_leave_the_folder(tmp_path: Path, name: str):
    with serving(tmp_path / "models") as ask:
        assert ask("PUT", f"/models/{name}", SMALL).status_code in (404, 405, 422)
        assert ask("DELETE", f"/models/{name}").status_code in (404, 405, 422)
    assert [path.name for path in tmp_path.iterdir()] == ["models"]
    assert list((tmp_path / "models").iterdir()) == []


def test_a_model_that_cannot_be_loaded_is_named_and_the_others_are_served(tmp_path: Path):
    with serving(tmp_path) as ask:
        ask("PUT", "/models/good", SMALL)
        ask("PUT", "/models/bad", SMALL)
    (tmp_path / "bad" / "model.holdfast").write_bytes(b"damaged")
    with serving(tmp_path) as ask:
        assert ask("GET", "/health").json() == {"status": "failing", "models": 2, "failing": ["bad"]}
        answer = ask("POST", "/models/bad/observe", observation(1))
        assert answer.status_code == 503
        assert "could not be loaded" in answer.json()["detail"]
        assert ask("POST", "/models/good/observe", observation(1)).status_code == 200
        assert 'holdfast_model_up{model="bad"} 0.0' in ask("GET", "/metrics").text
        assert ask("PUT", "/models/bad?replace=true", SMALL).status_code == 200
        assert ask("POST", "/models/bad/observe", observation(1)).status_code == 200


@pytest.mark.parametrize(
    ("token", "allowed"),
    [
        (None, set()),
        ("wrong-0123456789-0", set()),
        ("observer-0123456789", {"observe", "look"}),
        ("predictor-0123456789", {"predict", "look"}),
        ("admin-0123456789", {"observe", "predict", "make", "look"}),
    ],
)
def test_a_token_allows_what_its_scopes_say(tmp_path: Path, token: str | None, allowed: set[str]):
    requests = {
        "observe": ("POST", "/models/a/observe", observation(2)),
        "predict": ("POST", "/models/a/predict", {"x": toy_batch(1)[0]}),
        "make": ("PUT", "/models/b", SMALL),
        "look": ("GET", "/metrics", None),
    }
    with serving(tmp_path, tokens=TOKENS) as ask:
        for request in (("PUT", "/models/a", SMALL), ("POST", "/models/a/observe", observation(1))):
            assert ask(*request, **bearer("admin-0123456789")).is_success
        given = bearer(token) if token else {}
        for what, request in requests.items():
            answer = ask(*request, **given)
            if what in allowed:
                assert answer.is_success
            else:
                assert answer.status_code == (403 if token and not token.startswith("wrong") else 401)
                assert set(answer.json()) == {"detail"}
        assert ask("GET", "/health").status_code == 200  # for those who watch over it


def test_without_tokens_only_this_machines_own_names_are_answered(tmp_path: Path):
    with serving(tmp_path, local=True) as ask:
        assert ask("GET", "/health").status_code == 200
        assert ask("GET", "/health", headers={"host": "localhost:8765"}).status_code == 200
        assert ask("GET", "/health", headers={"host": "[::1]:8765"}).status_code == 200
        assert ask("GET", "/health", headers={"host": "evil.example"}).status_code == 403
        assert ask("GET", "/health", headers={"host": "127.0.0.1.evil.example:80"}).status_code == 403


def test_a_body_that_is_too_large_is_refused(tmp_path: Path):
    with serving(tmp_path, limits=Limits(body_bytes=1000)) as ask:
        ask("PUT", "/models/a", SMALL)
        answer = ask("POST", "/models/a/observe", content=b"x" * 1001)
        assert answer.status_code == 413
        assert "1,000 bytes" in answer.json()["detail"]

        async def chunks() -> Any:
            for _ in range(11):
                yield b"x" * 100

        assert ask("POST", "/models/a/observe", content=chunks()).status_code == 413
        assert ask("POST", "/models/a/observe", observation(1)).status_code == 200


def test_who_asks_too_often_is_told_when_to_come_back(tmp_path: Path):
    with serving(tmp_path, tokens=TOKENS, limits=Limits(requests_per_second=0.001)) as ask:
        first, second = (ask("GET", "/models", **bearer("observer-0123456789")) for _ in range(2))
        assert (first.status_code, second.status_code) == (200, 429)
        assert int(second.headers["retry-after"]) > 1
        assert ask("GET", "/models", **bearer("admin-0123456789")).status_code == 200  # each token has its own rate


def test_a_batch_that_waits_too_long_is_withdrawn(tmp_path: Path):
    with serving(tmp_path, limits=Limits(answer_seconds=0.01)) as ask:
        ask("PUT", "/models/a", SMALL)
        hosted = ask.app.state.shelf.get("a")
        with busy(hosted):
            answer = ask("POST", "/models/a/observe", observation(1))
        assert answer.status_code == 503
        assert "nothing was learned" in answer.json()["detail"]
        assert hosted.ask(lambda hosted: hosted.learner.n_observed).result() == 0


def test_a_full_journal_is_answered_with_507(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with serving(tmp_path) as ask:
        ask("PUT", "/models/a", SMALL)

        def full(_: bytes) -> int:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(ask.app.state.shelf.get("a").journal.journal, "write", full)
            answer = ask("POST", "/models/a/observe", observation(1))
        assert answer.status_code == 507
        assert answer.json()["detail"] == "nothing was learned: No space left on device"
        assert ask("POST", "/models/a/observe", observation(1)).status_code == 200


def test_metrics_count_requests_by_route_and_not_by_path(tmp_path: Path):
    with serving(tmp_path) as ask:
        ask("PUT", "/models/a", SMALL)
        ask("POST", "/models/a/observe", observation(1))
        ask("GET", "/models/no-such")
        ask("GET", "/no/such/path")
        text = ask("GET", "/metrics").text
    assert 'holdfast_requests_total{route="/models/{name}/observe",method="POST",status="200"} 1' in text
    assert 'holdfast_requests_total{route="/models/{name}",method="GET",status="404"} 1' in text
    assert 'holdfast_requests_total{route="other",method="GET",status="404"} 1' in text
    assert 'holdfast_samples_total{model="a"} 4.0' in text
    assert "no-such" not in text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(float(line.rsplit(" ", 1)[1]) >= 0 for line in lines)


def test_the_page_and_the_description_need_nothing_from_elsewhere(tmp_path: Path):
    with serving(tmp_path, tokens=TOKENS) as ask:
        page = ask("GET", "/")
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        text = page.text + ask("GET", "/page.js").text + ask("GET", "/page.css").text
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
        description = ask("GET", "/openapi.json").json()
    guarded = {path for path, ways in description["paths"].items() if all("security" in way for way in ways.values())}
    assert guarded == set(description["paths"]) - {"/health"}
