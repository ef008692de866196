"""Methods that learn by Gaussian processes keep the contract of all methods."""

from contracts.methods import METHODS_OF_PROCESSES, OF_FULL_IN_BRIEF
from contracts.optimizer import BriefContract, OptimizerContract, each


@each(METHODS_OF_PROCESSES)
class TestMethods(OptimizerContract):
    pass


@each(OF_FULL_IN_BRIEF)
class TestInBrief(BriefContract):
    pass
