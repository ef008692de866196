"""Methods that learn by Gaussian processes keep the contract of all methods."""

from contracts.methods import METHODS_OF_PROCESSES
from contracts.optimizer import OptimizerContract, each


@each(METHODS_OF_PROCESSES)
class TestMethods(OptimizerContract):
    pass
