from contracts.optimizer import OptimizerContract


class TestSmac(OptimizerContract):
    method = "smac"
