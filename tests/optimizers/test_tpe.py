from contracts.optimizer import OptimizerContract


class TestTpe(OptimizerContract):
    method = "tpe"
