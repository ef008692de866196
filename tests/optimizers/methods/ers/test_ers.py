from contracts.optimizer import OptimizerContract


class TestErs(OptimizerContract):
    method = "ers"
    margin = 0.0  # its configurations are those of random search
    margin_share = 0.0
