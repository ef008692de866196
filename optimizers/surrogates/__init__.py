"""Models of loss and cost, fitted on what was observed.

`gaussian_process`, fitted by its `log_posterior`, with noise and covariances that are a `kernel`
each: `stationary` and conditional ones, over `pipeline_inputs`, over a fidelity a
`fidelity_kernel`, and over learning curves a `curve_kernel`; `monotone`, curves that do not fall;
`random_forest`, SMAC's; `linear` models, FLASH's among them; and `costs`, the seconds of any query,
by a linear regression for each algorithm.
"""
