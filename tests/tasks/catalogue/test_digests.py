"""Studies and artifacts on disk name spaces by digest and artifacts by key: both must stay.

A digest that changes makes every study of that space unusable; other effective values make its
artifacts unfindable.
"""

import hashlib
import json
from dataclasses import replace

import pytest

from prefect_tune.optimizers.space.configuration import default_choice
from prefect_tune.storage.key import prefix_key
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.fitting.memory_estimate import MatrixSummary
from prefect_tune.tasks.fitting.recipe import recipe

DENSE = MatrixSummary(1000, 20, "dense", "float64", n_classes=3)
SPARSE = MatrixSummary(300, 5000, "sparse", "float64", 0.01, 0.0, n_classes=2)
SPACE_DIGESTS = {
    "small": "ca31fa430fad610e",
    "flash": "062e23b73b6e1f28",
    "healthcare": "e7d6c0f52761ef96",
    "regression": "4a185b6aa3496578",
    "admm": "6a42f3fc298e56a3",
    "admm_large": "0cd85d00e7fe875d",
    "svm": "46a85c891597e1fe",
    "svr": "78d41d549e911b03",
    "random_forest": "3c97088aaf7047bd",
    "gradient_boosting": "3b9c4d0c97f5453f",
    "gradient_boosting_regressor": "6c6fdf17f6db6494",
    "random_forest_regressor": "8a288982f5bc3631",
    "mlp": "8e3601bfe57f0c07",
    "modern": "42cfb1acb6b69bdb",
    "modern_healthcare": "7880f96d0cd10ab9",
    "modern_regression": "13265ebc1fba1840",
}
RECIPE_DIGESTS = {
    "small": "6fd1c6851e6af533",
    "flash": "a04f573325e64edd",
    "healthcare": "e2b0a5a46dfd6d0f",
    "regression": "3ff244cca75c16d2",
    "admm": "fb4ad98a355e0d72",
    "admm_large": "646fb211c7aca667",
    "svm": "8d492486a5fa96cf",
    "svr": "b97cb1e7be102d6a",
    "random_forest": "cdd9121f567fa462",
    "gradient_boosting": "1a665d473a882609",
    "gradient_boosting_regressor": "a50c62480405ef3d",
    "random_forest_regressor": "04b3ca6fd9dcbad4",
    "mlp": "3324b4d328957829",
    "modern": "d2dcdc6a1fd643c3",
    "modern_healthcare": "e231b301d18b6fd2",
    "modern_regression": "e54449bd5c934906",
}
PREFIX_KEY = "dd1f8c87423d6c8fd9714212c702836f4508c413fed936954b162963d1edb421"


def recipes_digest(name: str) -> str:
    """Of the default of each algorithm, on dense and sparse data, without library versions."""
    documents = []
    for step in SPACES[name].steps:
        for algorithm in step.algorithms:
            for summary in (DENSE, SPARSE) if algorithm.estimator else ():
                for balanced in (False, True):
                    made = recipe(algorithm, default_choice(algorithm), summary, balanced=balanced)
                    documents.append(replace(made, library="").to_json(7))
    return hashlib.sha256(json.dumps(documents, sort_keys=True).encode()).hexdigest()[:16]


def test_no_space_is_left_out() -> None:
    assert set(SPACE_DIGESTS) == set(RECIPE_DIGESTS) == set(SPACES)


@pytest.mark.parametrize("name", SPACES)
def test_spaces_keep_their_digests(name) -> None:
    assert SPACES[name].digest[:16] == SPACE_DIGESTS[name]


@pytest.mark.parametrize("name", SPACES)
def test_algorithms_keep_their_effective_values(name) -> None:
    assert recipes_digest(name) == RECIPE_DIGESTS[name]


def test_a_lineage_keeps_its_key() -> None:
    pca = SPACES["flash"].step("preprocess").algorithm("pca")
    made = replace(recipe(pca, default_choice(pca), DENSE, balanced=False), library="sklearn 1")
    steps = [{"step": "preprocess", **made.to_json(7)}]
    lineage = {"dataset": "d", "split": "s", "fold": 0, "subset": 1.0, "subset_draw": 0}
    assert prefix_key({**lineage, "steps": steps}) == PREFIX_KEY
