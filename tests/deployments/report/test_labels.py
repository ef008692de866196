"""Labels: what differs reads differently."""

import pytest

from prefect_tune.deployments.report.plots import shortened
from prefect_tune.deployments.report.sections.importance import input_names
from prefect_tune.optimizers.importance.effects import inputs_of
from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.tasks.catalogue.spaces import space_named


@pytest.mark.parametrize("space", ["flash", "healthcare", "regression", "small"])
def test_each_choice_of_a_space_has_a_name_of_its_own(space) -> None:
    inputs = inputs_of(CandidateSpace(space_named(space)))
    names = input_names(inputs)
    assert len(names) == len(inputs)
    assert len(set(names.values())) == len(inputs)
    assert len(set(shortened(list(names.values())))) == len(inputs)


def test_the_step_is_named_only_where_the_rest_is_not_enough() -> None:
    names = input_names(inputs_of(CandidateSpace(space_named("flash"))))
    of_svms = {name for name in names.values() if name.startswith("C of linear_svm")}
    assert len(of_svms) == 2
    assert all(name.endswith(")") for name in of_svms)
    assert any("(" not in name for name in names.values())


def test_long_texts_that_differ_in_the_middle_stay_apart() -> None:
    a, b = (f"{'x' * 30}{middle}{'y' * 30}" for middle in "ab")
    labels = shortened([a, b, a, "short"])
    assert labels[0] == labels[2] != labels[1]
    assert max(map(len, labels)) < 50
    assert labels[3] == "short"
