"""The end of a study: choice, fit and test losses of the final model.

- `final_model`: the choice of the model, its fit within the budget, and its record
- `ensemble`: the choice of an ensemble on held-out rows
- `refitting`: fits and scores as jobs of workers
- `reevaluation`: finalists on a second split of the rows
"""
