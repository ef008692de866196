"""Preparation of a study from parameters. Input errors are reported before any work starts.

- `prepare`: the whole preparation, the prepared study, and its handover to a flow
- `study_input`: parsed options with the metric and space that the options name, and the data of a
  new study
- `resolve`: the plan of a new study, with its initial configurations
- `resume`: the plan of an existing study, merged with a request
- `output_files`: checks that outputs do not replace inputs
"""
