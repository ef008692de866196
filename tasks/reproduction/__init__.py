"""A trial as a program that evaluates it again, in scikit-learn alone where that is possible.

`fold_steps` finds out what each step was in each fold, `steps_text` has that `described` by the
`expressions` that make the estimators, and `written` prints them. The other parts of a `program`
read the rows (`reading_text`, `event_text`), split them (`splitting_text`), run the folds
(`running_text`) and judge them (`scoring_text`).
"""
