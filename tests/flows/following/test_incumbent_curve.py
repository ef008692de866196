"""What has led over time, in bounded memory, and drawn."""

import pytest

from prefect_tune.deployments.views.live_lines import block_curve
from prefect_tune.flows.progress import CurvePoint, IncumbentCurve


def test_what_leads_as_before_is_no_new_point() -> None:
    curve = IncumbentCurve()
    for seconds, loss in ((1.0, 30.0), (2.0, 30.0), (3.0, 20.0), (4.0, 20.0)):
        curve.add(seconds, loss)
    assert curve.points == ((1.0, 30.0), (3.0, 20.0))


def test_only_losses_of_as_much_as_the_last_one_are_compared_with_it() -> None:
    curve = IncumbentCurve()
    curve.add(1.0, 12.0, "subset 1/8")
    curve.add(2.0, 30.0, "subset 1/4")
    curve.add(3.0, 10.0, "subset 1/8")
    assert curve.points == ((1.0, 12.0), (3.0, 10.0))
    curve.add(4.0, 20.0)
    assert curve.points == ((4.0, 20.0),)


def test_very_many_incumbents_are_thinned_and_first_and_last_stay() -> None:
    curve = IncumbentCurve()
    for number in range(10_000):
        curve.add(float(number), 10_000.0 - number)
        assert len(curve.points) <= 200
    assert curve.points[0] == (0.0, 10_000.0)
    assert curve.points[-1] == (9_999.0, 1.0)


@pytest.mark.parametrize("losses", [[9.0], [9.0, 9.0], [40.0, 9.0, 3.0], [-1.0, -3.0], [0.0, 0.0]])
@pytest.mark.parametrize("end", [0.0, 1.0, 1e6])
@pytest.mark.parametrize("width", [1, 2, 13])
def test_a_curve_fits_whatever_it_is_of_and_ends_at_what_leads(losses, end, width) -> None:
    points = [CurvePoint(float(at), loss) for at, loss in enumerate(losses)]
    drawn = block_curve(points, end, width)
    assert 1 <= len(drawn) <= width
    assert drawn[-1] == "▁"


def test_nothing_is_drawn_of_nothing() -> None:
    assert block_curve([], 3.0, 9) == ""
