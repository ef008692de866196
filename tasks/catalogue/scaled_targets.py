"""Networks, and what is fitted to standardised numbers."""

from typing import Any

from sklearn.compose import TransformedTargetRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

__all__ = ["kernel_svm_regressor", "mlp_classifier", "mlp_regressor"]


def mlp_classifier(*, hidden_layers: int, nodes_per_layer: int, **arguments: Any) -> MLPClassifier:
    """Return a network of equally wide hidden layers."""
    return MLPClassifier(hidden_layer_sizes=(nodes_per_layer,) * hidden_layers, **arguments)


def mlp_regressor(
    *, hidden_layers: int, nodes_per_layer: int, **arguments: Any
) -> TransformedTargetRegressor:
    """Return such a network for standardised numbers."""
    layers = (nodes_per_layer,) * hidden_layers
    return _of_scaled(MLPRegressor(hidden_layer_sizes=layers, **arguments))


def kernel_svm_regressor(**arguments: Any) -> TransformedTargetRegressor:
    """Return a support vector machine for standardised numbers, whose epsilon is in deviations."""
    return _of_scaled(SVR(**arguments))


def _of_scaled(regressor: Any) -> TransformedTargetRegressor:
    return TransformedTargetRegressor(regressor, transformer=StandardScaler())
