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
    "small": "71ad92c81391a041",
    "flash": "06cec435b50ea6c8",
    "healthcare": "e7d6c0f52761ef96",
    "regression": "e3dd34d9bc8d7ead",
    "admm": "0998e5630ef29177",
    "admm_large": "387bea751b735a4e",
    "svm": "b31e36ba62833034",
    "svr": "cd389da7672ed013",
    "random_forest": "44283d9ba829f576",
    "gradient_boosting": "2838e4ced1b7a7be",
    "gradient_boosting_regressor": "5a4ec65f922ff0da",
    "random_forest_regressor": "ceed0aed95e40cf0",
    "mlp": "c5b2e075d5b39f22",
    "modern": "deabeb42cdb7b119",
    "modern_healthcare": "cfd5e52a00917a8f",
    "modern_regression": "fc276b24e680c22a",
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
