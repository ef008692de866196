"""Models of loss and cost, fitted on what was observed.

`gaussian_process` with its `kernels`, over `pipeline_inputs`; `random_forest`, SMAC's; and
`path_linear`, FLASH's.
"""
