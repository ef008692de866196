"""Names of all spaces that `--space` knows; light, for help and completion."""

__all__ = ["SPACE_NAMES"]

SPACE_NAMES = (
    "small", "flash", "healthcare", "regression", "admm", "admm_large", "svm", "svr",
    "random_forest", "gradient_boosting", "gradient_boosting_regressor",
    "random_forest_regressor", "mlp", "modern", "modern_healthcare", "modern_regression",
)  # fmt: skip
