import pytest
from worlds import finite_space, mixed_space, sparse_space

from prefect_tune.optimizers import Algorithm, Space, Step, UnknownName, order_step


def test_paths_are_listed_first_step_most_significant_without_forbidden_ones() -> None:
    assert list(mixed_space().paths()) == [
        ("none", "tree"),
        ("none", "bayes"),
        ("unit", "svm"),
        ("unit", "tree"),
        ("unit", "bayes"),
    ]


def test_counts_are_those_of_the_papers_full_product() -> None:
    space = mixed_space()
    assert (space.n_paths, space.n_feasible_paths, space.n_hyperparameters) == (6, 5, 4)


def test_fixed_steps_are_run_but_not_counted() -> None:
    space = sparse_space()
    assert space.n_paths == 4
    assert [a.id for _, a in space.pipeline(("keep", "any"))] == ["count", "keep", "any"]


def test_sparse_data_never_reaches_an_algorithm_that_takes_dense_data_only() -> None:
    assert list(sparse_space().paths()) == [("keep", "any"), ("dense", "any"), ("dense", "picky")]


def test_the_digest_tells_spaces_apart_and_equal_ones_not() -> None:
    assert mixed_space().digest == mixed_space().digest
    assert len({s().digest for s in (mixed_space, finite_space, sparse_space)}) == 3


def test_an_unknown_algorithm_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"'tre'\. Did you mean 'tree'\?"):
        mixed_space().step("model").algorithm("tre")


def test_an_unknown_step_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'model'"):
        mixed_space().step("modle")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Step("s", ()), "no algorithm"),
        (lambda: order_step("a"), "orders 2 to 4 different steps; got a"),
        (lambda: order_step("a", "a"), "orders 2 to 4 different steps; got a, a"),
        (lambda: order_step(*"abcde"), "orders 2 to 4 different steps"),
        (
            lambda: Space(
                "x", (order_step("s", "t"), *(Step(n, (Algorithm(id="a"),)) for n in "sut"))
            ),
            "orders s, t, which must stand directly behind it; there are s, u",
        ),
        (
            lambda: Space(
                "x", (order_step("s", "t"), *(Step(n, (Algorithm(id="a"),)) for n in "st"))
            ),
            "step 't' of space 'x' cannot change places",
        ),
        (lambda: Step("s", (Algorithm(id="a"), Algorithm(id="a"))), "two algorithms called 'a'"),
        (lambda: Step("s", (Algorithm(id="a"), Algorithm(id="b")), fixed=True), "is fixed"),
        (lambda: Space("x", (Step("s", (Algorithm(id="a"),), fixed=True),)), "nothing to tune"),
        (lambda: Space("x", (Step("s", (Algorithm(id="a"),)),) * 2), "two steps called 's'"),
        (
            lambda: Space(
                "x",
                (Step("s", (Algorithm(id="a"),)), Step("t", (Algorithm(id="b"),))),
                forbidden=frozenset({(("s", "a"), ("t", "b"))}),
            ),
            "no path that can run",
        ),
        (lambda: Algorithm(id="a", transforms={"depth": "clip_n"}), "'depth'"),
    ],
)
def test_a_space_that_cannot_be_is_refused_with_the_reason(build, message) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_the_plainest_algorithm_of_a_step_does_nothing_or_is_the_first() -> None:
    space = mixed_space()
    assert [step.plainest.id for step in space.steps] == ["none", "svm"]
