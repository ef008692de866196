"""Models of loss and cost, fitted to observations.

`gaussian_process` is fitted by its `log_posterior`, with noise and covariances from `kernel`. Other
covariances are `stationary` and conditional ones over `pipeline_inputs`, a `fidelity_kernel`, and a
`curve_kernel` over learning curves. `monotone` has curves that do not fall, `random_forest` SMAC's
model, and `linear` regressions, FLASH's among them. `costs` predicts the seconds of any query, by a
linear regression for each algorithm.
"""
