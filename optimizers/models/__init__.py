"""Models of loss and cost, fitted to observations.

`gaussian_process` contains Gaussian processes over the `inputs` of pipelines, with the covariances
and the noise in `kernels`, fitted by maximizing the `log_posterior`. `fidelity_kernel` adds a
fidelity to the inputs, and `curve_kernel` adds time. `monotone` contains processes of curves that
never fall. `forest` is the model of SMAC. `path_linear` contains linear regressions, such as the
model of FLASH. `seconds` predicts run times with a linear regression for each algorithm.
"""
