"""Series: studies of one question over time, and the champion among their models.

- `question`: what all studies of a series have in common.
- `changes`: counts of rows, columns and classes that differ between the data of two studies.
- `warm_start`: results of earlier studies that a new study starts from.
- `held`: a series that this process alone may change.
- `next_study`: decides what a run does, and prepares its study.
- `run`: the event on changed data, and the end of a run without new data.
- `champion`: sets the champion, also by hand.
- `promotion`: decides after a study whether its model becomes the champion.
- `view`: reads a series for people and programs.
"""
