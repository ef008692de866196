"""Models of loss and cost, fitted on what was observed.

`gaussian_process`, fitted by its `log_posterior` over `cholesky` factors, or drawn by an
`ensemble_sampler`, with covariances that are a `kernel` each: `stationary` ones, `conditional`
ones, over `pipeline_inputs`, over a fidelity a `fidelity_kernel`, and over learning curves a
`curve_kernel`, with `noise` around them; `monotone`, curves that do not fall
at their `slope_sites`, by `truncation`; `latents`, the curves of candidates over the fidelity;
`random_forest`, SMAC's; and `path_linear`, FLASH's.
"""
