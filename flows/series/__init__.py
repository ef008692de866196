"""Series: studies of one question over time, and the champion among their models.

- `question`: the settings that all studies of a series share, and differences between their data.
- `locked`: a series whose lease this process holds.
- `next_study`: decides which study a run starts or resumes, and prepares the study.
- `champion`: changes of the champion, by a decision or by hand.
- `promotion`: decides whether the model of a study becomes the champion.
- `view`: reads a series for people and programs.
"""
