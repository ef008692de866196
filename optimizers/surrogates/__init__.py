"""Models of loss and cost, fitted on what was observed.

`gaussian_process`, fitted by its `log_posterior`, with covariances that are a `kernel` each:
`stationary` and conditional ones, over `pipeline_inputs`, over a fidelity a `fidelity_kernel`, and
over learning curves a `curve_kernel`, with `noise` around them; `monotone`, curves that do not
fall, by `truncation`; `random_forest`, SMAC's; `path_linear`, FLASH's; and `costs`, the seconds of
any query, by a Bayesian `linear` regression for each algorithm.
"""
