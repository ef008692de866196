from worlds import finite_space, mixed_space

from prefect_tune.optimizers.space.sampling import enumerate_configurations

SPACE = mixed_space()


def test_a_finite_space_is_listed_without_what_is_forbidden() -> None:
    listed = enumerate_configurations(finite_space(), 100)
    assert listed is not None
    assert len(set(listed)) == len(listed) == 5


def test_a_continuous_or_large_space_is_not_listed() -> None:
    assert enumerate_configurations(SPACE, 10_000) is None
    assert enumerate_configurations(finite_space(), 4) is None


def test_all_values_of_an_integer_in_logarithms_are_listed() -> None:
    listed = enumerate_configurations(SPACE, 10_000, ("unit", "tree"))
    assert listed is not None
    assert [dict(c["model"].values)["depth"] for c in listed] == list(range(1, 51))
