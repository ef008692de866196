"""Series: studies of one question over time, and the champion among their models.

- `question`: the settings that all studies of a series share, and differences of their data.
- `locked`: a series that only this process may change.
- `next_study`: decides what a run does, and prepares its study from earlier studies.
- `champion`: changes of the champion, by decisions and by hand.
- `promotion`: decides after a study whether its model becomes the champion.
- `view`: reads a series for people and programs.
"""
