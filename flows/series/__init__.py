"""Series: studies of one question over time, and the champion among their models.

- `question`: what all studies of a series have in common, and how their data differ.
- `locked`: a series that this process alone may change.
- `next_study`: decides what a run does, prepares its study, and starts it from earlier ones.
- `champion`: sets the champion, also by hand.
- `promotion`: decides after a study whether its model becomes the champion.
- `view`: reads a series for people and programs.
"""
