"""Models of loss and cost, fitted to observations.

`gaussian_process` has Gaussian processes over the `inputs` of pipelines, with the covariances and
the noise in `kernels`, fitted by their `log_posterior`. `fidelity_kernel` adds a fidelity to the
inputs, and `curve_kernel` adds time. `monotone` has processes of curves that never fall. `forest`
is the model of SMAC. `path_linear` has linear regressions, such as the model of FLASH. `seconds`
predicts run times by a linear regression for each algorithm.
"""
