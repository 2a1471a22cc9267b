"""Bearer tokens and what each allows."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args

Scope = Literal["observe", "predict", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
SHORTEST = 16  # characters of a token


class Tokens:
    """Tokens with their scopes; `admin` includes the others. None at all: everything is allowed to everyone.

    Only digests are kept. Each one is compared, in constant time, whichever fits.

    Example:
        >>> tokens = Tokens([("correct-horse-battery", ["predict"])])
        >>> tokens.scopes_of("correct-horse-battery"), tokens.scopes_of("wrong")
        (frozenset({'predict'}), None)
    """

    def __init__(self, given: Iterable[tuple[str, Iterable[Scope]]] = ()) -> None:
        self._known: list[tuple[bytes, frozenset[Scope]]] = []
        for token, scopes in given:
            if len(token) < SHORTEST:
                raise ValueError(f"a token of {len(token)} characters can be guessed: give {SHORTEST} or more")
            allowed = frozenset(scopes)
            self._known.append((_digest(token), frozenset(SCOPES) if "admin" in allowed else allowed))
        if len({digest for digest, _ in self._known}) < len(self._known):
            raise ValueError("a token is given twice: give each its own line")

    def __bool__(self) -> bool:
        return bool(self._known)

    def scopes_of(self, token: str) -> frozenset[Scope] | None:
        """Return what a token allows; None if it is not known."""
        digest = _digest(token)
        found = None
        for known, scopes in self._known:
            if hmac.compare_digest(known, digest):
                found = scopes
        return found


def read_tokens(path: Path) -> Tokens:
    """Read a file with a token a line, behind its scopes: `observe,predict TOKEN`. Lines with `#` are comments."""
    given = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        scopes = words[0].split(",")
        if len(words) != 2 or not set(scopes) <= set(SCOPES):
            raise ValueError(
                f"{path}, line {number}: give scopes ({', '.join(SCOPES)}) and a token, as 'predict TOKEN'"
            )
        given.append((words[1], [scope for scope in SCOPES if scope in scopes]))
    if not given:
        raise ValueError(f"{path} has no token: write 'admin TOKEN' into it, or leave --tokens out")
    return Tokens(given)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
