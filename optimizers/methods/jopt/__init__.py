"""JOPT: paths and hyperparameters as one problem, for comparison with ADMM."""
