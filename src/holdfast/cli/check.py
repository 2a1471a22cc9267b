"""Command `check`: the contract tests of a part of one's own."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from holdfast.checks import Outcome, checks_of, kind_of, run_checks
from holdfast.cli.options import Changes, Data, Json, out, print_json
from holdfast.experiments.recipes import parse_changes
from holdfast.parts import Unknown


def check_command(
    part: Annotated[
        str, typer.Argument(metavar="MODULE:CLASS", help="A class of yours, or a part's name in 'holdfast list'.")
    ],
    changes: Changes = None,
    data: Data = None,
    input_shape: Annotated[
        str | None, typer.Option(help="The shape of one sample, as 3x32x32, for a backbone.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Test a method, selection, retrieval, stream, backbone or probe of your own against the package's contracts."""
    kind = kind_of(part)
    checks = list(
        checks_of(part, changes=parse_changes(changes or []), data=data, input_shape=_parsed_shape(input_shape))
    )
    if not as_json:
        out.print(f"{part}: {len(checks)} checks of the {kind}")
    outcomes = []
    for outcome in run_checks(checks):
        outcomes.append(outcome)
        if not as_json:
            _print(outcome)
    n_failed = sum(outcome.outcome == "failed" for outcome in outcomes)
    if as_json:
        print_json({"part": part, "kind": kind, "failed": n_failed, "checks": [asdict(each) for each in outcomes]})
    else:
        out.print(f"{len(outcomes) - n_failed} passed, {n_failed} failed")
    if n_failed:
        raise typer.Exit(1)


def _print(outcome: Outcome) -> None:
    """Print one line for a check that passed; also the error and the user's lines for one that failed."""
    out.print(f"  {outcome.outcome if outcome.outcome == 'passed' else 'FAILED'}  {outcome.sentence}")
    if outcome.outcome == "failed":
        out.print(f"          {outcome.message}")
        for frame in outcome.frames:
            out.print(f"            {frame}\n              {frame.text}")


def _parsed_shape(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(size) for size in text.lower().split("x"))
    except ValueError as error:
        raise Unknown(f"'{text}' is no shape: write 3x32x32, or 8 for a vector") from error
