from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.serve.limits import Rates
from holdfast.serve.tokens import Tokens, read_tokens


def test_a_file_gives_tokens_with_their_scopes(tmp_path: Path):
    path = tmp_path / "tokens"
    path.write_text("# of the sensors\nobserve,predict  first-0123456789\n\nadmin second-0123456789\n")
    tokens = read_tokens(path)
    assert tokens.scopes_of("first-0123456789") == {"observe", "predict"}
    assert tokens.scopes_of("second-0123456789") == {"observe", "predict", "admin"}
    assert tokens.scopes_of("") is None
    assert tokens.scopes_of("first-012345678") is None
    assert "first" not in repr(vars(tokens))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no token"),
        ("predict", "line 1"),
        ("all 0123456789-0123456789", "give scopes"),
        ("predict short", "can be guessed"),
        ("predict 0123456789-0123456789\nadmin 0123456789-0123456789", "twice"),
    ],
)
def test_a_file_that_is_not_clear_is_refused(tmp_path: Path, text: str, said: str):
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        read_tokens(path)


def test_no_tokens_are_false():
    assert not Tokens()


def test_a_client_may_ask_at_its_rate_and_twice_as_often_at_once():
    now = 0.0
    rates = Rates(5, clock=lambda: now)
    assert [rates.wait("a") == 0 for _ in range(12)] == [True] * 10 + [False] * 2
    assert rates.wait("a") == pytest.approx(0.2)
    assert rates.wait("b") == 0
    now = 1.0
    assert [rates.wait("a") == 0 for _ in range(7)] == [True] * 5 + [False] * 2
