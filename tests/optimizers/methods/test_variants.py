"""Variants of methods keep what their options can break."""

from contracts.methods import VARIANTS_OF_PATHS, VARIANTS_OF_PROCESSES
from contracts.optimizer import VariantContract, each


@each({**VARIANTS_OF_PATHS, **VARIANTS_OF_PROCESSES})
class TestVariants(VariantContract):
    pass
