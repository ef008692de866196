from contracts.optimizer import OptimizerContract


class TestFlash(OptimizerContract):
    method = "flash"
