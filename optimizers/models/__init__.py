"""Models of loss and cost, fitted to observations.

`gaussian_process` is fitted by its `log_posterior`, with noise and covariances from `kernels`, over
the `inputs` of pipelines. `fidelity_kernel` adds a fidelity, and `curve_kernel` learning curves.
`monotone` has curves that do not fall. `forest` is SMAC's model, and `path_linear` has regressions,
including FLASH's. `seconds` predicts the seconds of any query, by a linear regression for each
algorithm.
"""
