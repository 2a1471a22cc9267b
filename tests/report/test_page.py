from pathlib import Path

from holdfast.report.page import results_page
from tests.support.made_up_results import table


def test_the_page_counts_its_verdicts_and_those_on_few_seeds():
    page = results_page([table()], command="holdfast paper all", base=Path("docs"))
    assert (
        "Of 3 numbers of the paper: 1 reproduced, 0 above, 0 below (1 of these on fewer seeds than in full), "
        "1 not comparable, 1 not run."
    ) in page
    assert "This page is written by `holdfast paper all`" in page
