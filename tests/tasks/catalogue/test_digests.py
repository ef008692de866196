"""Studies and artifacts on disk name spaces by digest and artifacts by key: both must stay.

A digest that changes makes every study of that space unusable; other effective values make its
artifacts unfindable. What is here was recorded before algorithms declared their memory estimates.
"""

import hashlib
import json
from dataclasses import replace

import pytest

from prefect_tune.optimizers.space.configuration import default_choice
from prefect_tune.storage.key import prefix_key
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.fitting.matrix_summary import MatrixSummary
from prefect_tune.tasks.fitting.recipe import recipe

DENSE = MatrixSummary(1000, 20, "dense", "float64", n_classes=3)
SPARSE = MatrixSummary(300, 5000, "sparse", "float64", 0.01, 0.0, n_classes=2)
SPACE_DIGESTS = {
    "small": "746de76e43742a62",
    "flash": "862a16f70e5af306",
    "healthcare": "41d472071bedf2a3",
    "regression": "9d3260d423cd27f7",
    "admm": "e10b50b6d257f212",
    "admm_large": "687cb7fe1cc2884a",
    "svm": "c6efd8aa865cc74b",
    "svr": "19f2c7a914e1698d",
    "random_forest": "8bedaaab9cd92224",
    "gradient_boosting": "816274b5613550ed",
    "gradient_boosting_regressor": "659e958a2f5c5cd1",
    "random_forest_regressor": "24069da3ebcfd45e",
    "mlp": "faebeb9939e35a98",
    "modern": "ed98144baca1e279",
    "modern_healthcare": "270b4d9ad8d65bf1",
    "modern_regression": "9756369f8960f36d",
}
RECIPE_DIGESTS = {
    "small": "fa33e76fc9d6907a",
    "flash": "f0fd460bf6f06394",
    "healthcare": "e2b0a5a46dfd6d0f",
    "regression": "a94427af0cb215f3",
    "admm": "1385bdb7a49af2f9",
    "admm_large": "6eb5087026142377",
    "svm": "19ea91b0a89ee55f",
    "svr": "42f67c928b1e43a2",
    "random_forest": "6a4dc074926f479d",
    "gradient_boosting": "db67d16f91e0059e",
    "gradient_boosting_regressor": "6b7f47b89f07cd9f",
    "random_forest_regressor": "2a4e0806868d01cd",
    "mlp": "67b9614c3f6cd2bf",
    "modern": "e0737a6a0b72442f",
    "modern_healthcare": "8e6f22df1db5427f",
    "modern_regression": "0e3209adbdef6240",
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
