from flash_worlds import counted_space
from worlds import mixed_space, ordered_space

from prefect_tune.optimizers import Algorithm, Space, Step
from prefect_tune.optimizers.methods.admm.admm import first_paths, plainest_path


def test_the_plainest_path_does_nothing_before_naive_bayes() -> None:
    space = ordered_space(2)
    paths = list(space.paths())
    assert plainest_path(space, paths) == ("a_before_b", "none", "none", "tree")
    space = counted_space((2, 3))
    assert plainest_path(space, list(space.paths())) == ("a0", "a0")


def test_doing_nothing_and_naive_bayes_are_plainer_than_having_nothing_to_choose() -> None:
    scales = (Algorithm(id="unit", estimator="x.Unit"), Algorithm(id="none"))
    models = (Algorithm(id="lda", estimator="x.Lda"), Algorithm(id="gaussian_nb", estimator="x.N"))
    space = Space("plain", (Step("scale", scales), Step("model", models)))
    assert plainest_path(space, list(space.paths())) == ("none", "gaussian_nb")


def test_where_it_cannot_run_it_is_the_one_most_like_it() -> None:
    space = mixed_space()
    left = [("unit", "svm"), ("unit", "bayes")]
    assert plainest_path(space, left) == ("unit", "bayes")


def test_one_plain_path_per_model_comes_first_if_wanted() -> None:
    space = mixed_space()
    paths = list(space.paths())
    plainest = plainest_path(space, paths)
    assert first_paths(space, paths, of_each_model=False) == [plainest]
    # A support vector machine cannot run on data that was not scaled.
    assert first_paths(space, paths, of_each_model=True) == [plainest, ("none", "tree")]
