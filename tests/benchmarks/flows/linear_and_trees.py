"""The space `healthcare` with none but linear models, naive Bayes and trees.

Here the construction of features takes most of the time, so that the cache has most to save.
"""

from prefect_tune import Space, Step
from prefect_tune.tasks.catalogue import classification, preprocessing
from prefect_tune.tasks.catalogue import preparation as rescaling
from prefect_tune.tasks.catalogue.construction import CONSTRUCT_FEATURES, DENSIFY
from prefect_tune.tasks.catalogue.preparation import BALANCE

MODELS = (
    classification.DECISION_TREE,
    classification.EXTRA_TREES,
    classification.GAUSSIAN_NB,
    classification.LINEAR_SVM,
    classification.MULTINOMIAL_NB,
    classification.PASSIVE_AGGRESSIVE,
    classification.RANDOM_FOREST,
    classification.SGD,
)
space = Space(
    "linear and trees",
    (
        CONSTRUCT_FEATURES,
        DENSIFY,
        rescaling.RESCALE,
        BALANCE,
        preprocessing.PREPROCESS,
        Step("fit model", MODELS),
    ),
    data="events",
)
