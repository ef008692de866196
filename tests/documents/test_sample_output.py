"""The page on results shows the present output of a study."""

from documents.sample_output import RESULTS, study_output, with_output


def test_page_on_results_shows_the_present_output() -> None:
    """`tests/documents/option_tables.py` rewrites the output."""
    page = RESULTS.read_text()
    assert study_output() in page
    assert page == with_output(page)
