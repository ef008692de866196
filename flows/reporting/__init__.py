"""Everything that a report says of a study or a comparison, as plain values.

`study_report` gathers what a study has, in one pass over its trials: its `progress`, `paths`,
times of steps, `failures`, `trade_offs` and `fidelities`, and the members of its model; then the
`importance` of its choices, how well the model predicts the test rows and what it makes of codes
(`model_report`), and the commands that reproduce it. `comparison_report` is the same
for several methods.
"""
