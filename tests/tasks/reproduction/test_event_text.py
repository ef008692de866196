"""The part of a program that reads patient events."""

from typing import Any, cast

from prefect_tune.optimizers.space.query import Query
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.reproduction.event_text import EventReading
from prefect_tune.tasks.reproduction.splitting_text import Shares


class Split:
    """As much of a split as a program names."""

    seed, n_folds = 0, 3


def test_no_url_has_a_password() -> None:
    url = "https://ann:hidden@host/"
    source = Source(data=f"{url}meds", labels=f"{url}labels", test=f"{url}test")
    query: Any = type("AllRows", (), {"folds": None, "subset": 1.0, "subset_draw": 0})()
    dataset: Any = type("Rows", (), {"classes": ("no", "yes")})()
    shares = Shares(3, None, 0.2)
    reading = EventReading(source, dataset, cast("Any", Split()), shares, cast("Query", query))
    text = "\n".join([*reading.constants(), *reading.functions()])
    assert "hidden" not in text
    assert 'labels="https://ann:***@host/labels"' in text
    assert 'test="https://ann:***@host/test"' in text
