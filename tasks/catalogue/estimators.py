"""scikit-learn's estimators with arguments as in the papers' tables.

Each estimator is a function of the hyperparameters in a table, or a class if its behavior depends
on data.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, is_classifier
from sklearn.cluster import FeatureAgglomeration
from sklearn.compose import TransformedTargetRegressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_selection import (
    GenericUnivariateSelect,
    SelectFromModel,
    SelectPercentile,
    chi2,
    f_classif,
    f_regression,
)
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from sklearn.linear_model import Lasso, LogisticRegression, SGDClassifier, SGDRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import KBinsDiscretizer, PolynomialFeatures, RobustScaler, StandardScaler
from sklearn.svm import SVR, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

_SCORES = {"chi2": chi2, "f_classif": f_classif, "f_regression": f_regression}
_POOLING = {"mean": np.mean, "median": np.median, "max": np.max}
_MODES = ("fpr", "fdr", "fwe")
"""Modes of selection, from lenient to strict."""
_UPDATES = {
    "hinge": "pa1",
    "squared_hinge": "pa2",
    "epsilon_insensitive": "pa1",
    "squared_epsilon_insensitive": "pa2",
}
_PASSIVE = {"penalty": None, "tol": None}


def robust_scaler(*, q_min: float, q_max: float, **arguments: Any) -> RobustScaler:
    """Return a scaler that uses the range between two quantiles, each from 0 to 1."""
    return RobustScaler(quantile_range=(100 * q_min, 100 * q_max), **arguments)


def discretizer(**arguments: Any) -> KBinsDiscretizer:
    """Return a transformer with one output column per bin of each column."""
    method = "averaged_inverted_cdf"
    return KBinsDiscretizer(encode="onehot-dense", quantile_method=method, **arguments)


class Polynomial(PolynomialFeatures):
    """Polynomial features that, unlike scikit-learn's, accept read-only sparse matrices."""

    def transform(self, X: Any) -> Any:
        """Return the products of columns, shape (n, products)."""
        return super().transform(X.copy() if sparse.issparse(X) else X)


def feature_agglomeration(
    *, n_clusters: int, linkage_and_metric: str, pooling: str
) -> FeatureAgglomeration:
    """Return hierarchical clustering of columns, with linkage and metric as one hyperparameter."""
    linkage, metric = linkage_and_metric.split("+")
    return FeatureAgglomeration(
        n_clusters=n_clusters, linkage=linkage, metric=metric, pooling_func=_POOLING[pooling]
    )


class _KeepsOneColumn:
    """A selection that keeps the column with the highest univariate score instead of no column."""

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the selection; if no column is selected, keep the column with the highest score."""
        vars(self).pop("only_column_", None)
        super().fit(X, y)  # type: ignore[misc]
        if not super()._get_support_mask().any():  # type: ignore[misc]
            scores = self._column_scores(X, y)
            self.only_column_ = int(np.argmax(np.where(np.isnan(scores), -np.inf, scores)))
        return self

    def _get_support_mask(self) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = super()._get_support_mask()  # type: ignore[misc]
        if hasattr(self, "only_column_"):
            mask = np.arange(len(mask)) == self.only_column_
        return mask

    def _column_scores(self, X: Any, y: Any) -> NDArray[np.float64]:  # noqa: ARG002
        scores: NDArray[np.float64] = self.scores_  # type: ignore[attr-defined]
        return scores


class SelectByModel(_KeepsOneColumn, SelectFromModel):
    """Selection of columns by their importance to a model."""

    def _column_scores(self, X: Any, y: Any) -> NDArray[np.float64]:
        score = f_classif if is_classifier(self.estimator) else f_regression
        return score(X, y)[0]


class SelectByPercentile(_KeepsOneColumn, SelectPercentile):
    """Selection of a percentage of the columns."""


class SelectByScore(_KeepsOneColumn, GenericUnivariateSelect):
    """Selection of columns whose score passes a threshold."""


def select_by_extra_trees(**arguments: Any) -> SelectByModel:
    """Return a selection of columns with above-mean importance to extra trees."""
    return SelectByModel(ExtraTreesClassifier(**arguments), threshold="mean")


def select_by_extra_trees_regressor(**arguments: Any) -> SelectByModel:
    """Return a selection of columns with above-mean importance to extra regression trees."""
    return SelectByModel(ExtraTreesRegressor(**arguments), threshold="mean")


def select_by_linear_svm(**arguments: Any) -> SelectByModel:
    """Return a selection of the columns that a linear SVM with an L1 penalty uses."""
    return SelectByModel(LinearSVC(penalty="l1", dual=False, **arguments), threshold=1e-5)


def select_by_lasso(**arguments: Any) -> SelectByModel:
    """Return a selection of the columns that the lasso uses."""
    return SelectByModel(Lasso(**arguments), threshold=1e-5)


def select_percentile(*, percentile: int, score: str = "f_classif") -> SelectByPercentile:
    """Return a selection of a percentage of the columns, by highest score."""
    return SelectByPercentile(_SCORES[score], percentile=percentile)


def select_univariate(*, param: float, mode: int, score: str) -> SelectByScore:
    """Return a selection by p-value; mode 0 bounds false positives, mode 1 false discoveries."""
    return SelectByScore(_SCORES[score], mode=_MODES[mode], param=param)


def select_by_p_value(*, alpha: float, mode: int) -> SelectByScore:
    """Return a selection by F-test, with arguments named as in ADMM's tables."""
    return select_univariate(param=alpha, mode=mode, score="f_classif")


def ada_boost_classifier(
    *, max_depth: int, splitter: str = "best", random_state: int | None = None, **arguments: Any
) -> AdaBoostClassifier:
    """Return AdaBoost with trees of a given depth, seeded by AdaBoost."""
    tree = DecisionTreeClassifier(max_depth=max_depth, splitter=splitter)
    return AdaBoostClassifier(tree, random_state=random_state, **arguments)


def ada_boost_regressor(
    *, max_depth: int, random_state: int | None = None, **arguments: Any
) -> AdaBoostRegressor:
    """Return AdaBoost with regression trees of a given depth."""
    tree = DecisionTreeRegressor(max_depth=max_depth)
    return AdaBoostRegressor(tree, random_state=random_state, **arguments)


def linear_discriminant(*, shrinkage: float | str | None, tol: float) -> LinearDiscriminantAnalysis:
    """Return linear discriminant analysis with the solver required by the shrinkage."""
    if shrinkage is None:
        return LinearDiscriminantAnalysis(solver="svd", tol=tol)
    return LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage, tol=tol)


class QuadraticDiscriminant(QuadraticDiscriminantAnalysis):
    """Quadratic discriminant analysis that accepts classes with no more rows than columns.

    The default solver of scikit-learn 1.9 rejects such classes, so a solver with shrunk covariances
    is used for them.
    """

    def __init__(self, reg_param: float = 0.5) -> None:
        super().__init__(reg_param=reg_param)

    def fit(self, X: Any, y: Any) -> Self:
        """Fit with a solver suited to the number of rows in the smallest class."""
        smallest = np.unique(y, return_counts=True)[1].min()
        is_flat = smallest <= X.shape[1]
        self.solver = "eigen" if is_flat else "svd"
        self.shrinkage = self.reg_param if is_flat else None
        return super().fit(X, y)

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - parent's signature
        """Return only the searched parameters."""
        return {"reg_param": self.reg_param}


def passive_aggressive_classifier(*, loss: str, C: float, **arguments: Any) -> SGDClassifier:
    """Return a passive-aggressive classifier that makes exactly `max_iter` passes."""
    settings = {"loss": "hinge", "learning_rate": _UPDATES[loss], "eta0": C, **_PASSIVE}
    return SGDClassifier(**settings, **arguments)


def passive_aggressive_regressor(*, loss: str, C: float, **arguments: Any) -> SGDRegressor:
    """Return a passive-aggressive regressor that makes exactly `max_iter` passes."""
    settings = {"loss": "epsilon_insensitive", "learning_rate": _UPDATES[loss], "eta0": C}
    return SGDRegressor(**settings, **_PASSIVE, **arguments)


def forest_classifier(*, family: str, **arguments: Any) -> BaseEstimator:
    """Return a random forest or extremely randomized trees for classification."""
    kind = ExtraTreesClassifier if family == "extra_trees" else RandomForestClassifier
    return kind(**arguments)


def forest_regressor(*, family: str, **arguments: Any) -> BaseEstimator:
    """Return a random forest or extremely randomized trees for regression."""
    kind = ExtraTreesRegressor if family == "extra_trees" else RandomForestRegressor
    return kind(**arguments)


def gaussian_process(*, kernel: str, **arguments: Any) -> GaussianProcessClassifier:
    """Return a Gaussian process classifier with a scaled kernel."""
    shape = RBF() if kernel == "RBF" else Matern(nu=2.5)
    return GaussianProcessClassifier(ConstantKernel() * shape, n_jobs=1, **arguments)


def logistic_regression(*, penalty: str, **arguments: Any) -> LogisticRegression:
    """Return logistic regression with an L1 or L2 penalty, set through `l1_ratio`."""
    l1_ratio = 1.0 if penalty == "l1" else 0.0
    return LogisticRegression(solver="saga", l1_ratio=l1_ratio, **arguments)


def mlp(**arguments: Any) -> MLPClassifier:
    """Return a neural network with hidden layers of equal width, trained by Adam."""
    return mlp_classifier(solver="adam", n_iter_no_change=32, **arguments)


class LayerwiseMLP(MLPClassifier):
    """A neural network with a separate L2 penalty `alphas[l]` on the weights of each layer.

    The gradient of layer l includes `alphas[l] W_l / n`, and the loss includes half of `alphas[l]
    |W_l|^2 / n` (ensemble SMBO, seventh space). The number of penalties is the number of hidden
    layers plus 1.
    """

    def __init__(
        self,
        hidden_layer_sizes: tuple[int, ...] = (10, 10),
        alphas: tuple[float, ...] = (1e-4, 1e-4, 1e-4),
        max_iter: int = 200,
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            hidden_layer_sizes=hidden_layer_sizes,
            activation="tanh",
            solver="lbfgs",
            alpha=0.0,
            max_iter=max_iter,
            random_state=random_state,
        )
        self.alphas = alphas

    def _compute_loss_grad(self, layer: int, n: float, *rest: Any) -> None:
        super()._compute_loss_grad(layer, n, *rest)
        coef_grads = rest[2]
        coef_grads[layer] += self.alphas[layer] * self.coefs_[layer] / n

    def _backprop(self, X: Any, *rest: Any) -> Any:
        loss, coef_grads, intercept_grads = super()._backprop(X, *rest)
        penalty = sum(a * np.sum(w**2) for a, w in zip(self.alphas, self.coefs_, strict=True))
        return loss + 0.5 * penalty / X.shape[0], coef_grads, intercept_grads


def layerwise_mlp(
    *, width_1: int, width_2: int, alpha_1: float, alpha_2: float, alpha_3: float, **arguments: Any
) -> LayerwiseMLP:
    """Return a neural network with two hidden layers of tanh units and three penalties."""
    return LayerwiseMLP((width_1, width_2), (alpha_1, alpha_2, alpha_3), **arguments)


def mlp_classifier(*, hidden_layers: int, nodes_per_layer: int, **arguments: Any) -> MLPClassifier:
    """Return a neural network for classification with hidden layers of equal width."""
    return MLPClassifier(hidden_layer_sizes=(nodes_per_layer,) * hidden_layers, **arguments)


def mlp_regressor(
    *, hidden_layers: int, nodes_per_layer: int, **arguments: Any
) -> TransformedTargetRegressor:
    """Return a neural network for regression, trained on the standardized target."""
    network = MLPRegressor(hidden_layer_sizes=(nodes_per_layer,) * hidden_layers, **arguments)
    return TransformedTargetRegressor(network, transformer=StandardScaler())


def kernel_svm_regressor(**arguments: Any) -> TransformedTargetRegressor:
    """Return support vector regression, with target and epsilon in standard deviations."""
    return TransformedTargetRegressor(SVR(**arguments), transformer=StandardScaler())
