"""The part of a program that builds a pipeline for each fold, fits it and prints its losses."""

import json
from collections.abc import Iterator, Sequence

from prefect_tune.tasks.objective.metric import Metric
from prefect_tune.tasks.reproduction.expressions import is_per_fold
from prefect_tune.tasks.reproduction.steps_text import WrittenStep
from prefect_tune.tasks.reproduction.written import Imports, written

__all__ = ["Running"]

_UTILS = "sklearn.utils.class_weight"


class Running:
    """How a program runs the folds of a trial.

    Args:
        steps: Of its pipeline.
        fold_losses: What the trial came to; empty if it failed.
        metric: What is minimised.
        is_of_events: Whether rows are patient events.
        split: What the function `split` takes.
    """

    def __init__(
        self,
        steps: Sequence[WrittenStep],
        fold_losses: Sequence[float],
        metric: Metric,
        *,
        is_of_events: bool,
        split: str,
    ) -> None:
        self._steps, self._losses, self._metric = steps, fold_losses, metric
        self._is_of_events, self._split = is_of_events, split
        self._weighted = [step.name for step in steps if step.is_weighted]

    @property
    def passes(self) -> int | None:
        """Passes over the rows that the model is trained for; None if it is fitted at once."""
        return self._steps[-1].passes

    @property
    def imports(self) -> dict[str, tuple[str, ...]]:
        """By module, the names that it imports."""
        names = ("compute_sample_weight",) if self._weighted else ()
        is_of_classes = self._metric.target == "classes"
        balanced = ("compute_class_weight",) if self.passes and is_of_classes else ()
        found = {"sklearn.pipeline": ("Pipeline",)}
        return found | ({_UTILS: names + balanced} if names + balanced else {})

    def constants(self) -> Iterator[str]:
        """Yield the line with what the trial came to."""
        if self._losses:
            yield f"LOSSES = {list(self._losses)!r}  # of the trial, by fold"

    def pipeline(self, imports: Imports) -> Iterator[str]:
        """Yield the function that builds the pipeline of a fold."""
        yield "def pipeline(fold):"
        if any(is_per_fold(step.expression) for step in self._steps):
            yield '    """Return the unfitted pipeline of a fold.'
            yield ""
            yield "    Seeds, and what depends on the number of rows or columns, are those that the"
            yield "    trial had in the fold."
            yield '    """'
        else:
            yield '    """Return the unfitted pipeline, the same for each fold."""'
        yield "    return Pipeline("
        yield "        ["
        for step in self._steps:
            yield from (f"            # {remark}" for remark in step.remarks)
            name = json.dumps(step.name, ensure_ascii=False)
            one_line = f"({name}, {written(step.expression, imports, 12, len(name) + 5)}),"
            if "\n" not in one_line:
                yield f"            {one_line}"
                continue
            yield "            ("
            yield f"                {name},"
            yield f"                {written(step.expression, imports, 16, 1)},"
            yield "            ),"
        yield "        ]"
        yield "    )"

    @property
    def _is_fitted_apart(self) -> bool:
        """Whether `Pipeline.fit` does not do what the study did, to the last digit."""
        return self.passes is not None or any(step.is_rounded for step in self._steps)

    def fitting(self) -> Iterator[str]:
        """Yield the function that fits a pipeline, where that is not its own method."""
        if not self._is_fitted_apart:
            return
        yield "def fitted(pipeline, X, y):"
        yield '    """Fit the pipeline as the study did.'
        yield ""
        if any(step.is_rounded for step in self._steps):
            yield "    `Pipeline.fit` calls `fit_transform`, which may make other last digits of"
            yield "    training rows than `transform`."
        if self.passes is not None:
            yield f"    The model makes {self.passes} passes over the rows, each with its own seed."
        yield '    """'
        if len(self._steps) > 1:
            name = "name" if any(step.is_out_of_fold for step in self._steps) else "_"
            yield f"    for {name}, step in pipeline.steps[:-1]:"
            yield from (f"        {line}" for line in self._prepare())
        yield "    model = pipeline[-1]"
        weights = ', sample_weight=compute_sample_weight("balanced", y)' if self._weighted else ""
        if self.passes is None:
            yield f"    model.fit(X, y{weights})"
        else:
            yield from (f"    {line}" for line in self._pass_over(weights))
        yield "    return pipeline"

    def _prepare(self) -> Iterator[str]:
        """Yield the lines that fit a step before the model."""
        apart = [step.name for step in self._steps if step.is_out_of_fold]
        if not apart:
            yield "X = step.fit(X, y).transform(X)"
            return
        names = f"== {json.dumps(apart[0])}" if len(apart) == 1 else f"in {json.dumps(apart)}"
        yield f"if name {names}:  # it encodes training rows by others"
        yield "    X = step.fit_transform(X, y)"
        yield "else:"
        yield "    X = step.fit(X, y).transform(X)"

    def _pass_over(self, weights: str) -> Iterator[str]:
        """Yield the lines that train a model by passes over the rows."""
        more = weights
        if self._metric.target == "classes":
            yield "classes = np.unique(y)"
            yield 'if getattr(model, "class_weight", None) == "balanced":'
            yield '    weights = compute_class_weight("balanced", classes=classes, y=y)'
            yield "    model.set_params(class_weight=dict(zip(classes, weights)))"
            more = f", classes=classes{weights}"
        yield "seed = model.random_state"
        yield f"for number in range(1, {self.passes} + 1):"
        yield "    sequence = np.random.SeedSequence(seed, spawn_key=(number,))"
        yield "    model.set_params(random_state=int(sequence.generate_state(1)[0]))"
        yield f"    model.partial_fit(X, y{more})"

    def main(self) -> Iterator[str]:
        """Yield the function that runs all folds and prints their losses."""
        yield "def main():"
        yield '    """Print the loss of each fold, and their mean."""'
        yield '    warnings.simplefilter("ignore")  # advice on settings that the search has tried'
        if self._is_of_events:
            yield "    dataset = read()"
            yield "    X, y = dataset.X, dataset.y"
        else:
            yield "    X, y, groups = read()" if "groups" in self._split else "    X, y = read()"
        yield "    losses = []"
        yield f"    for fold, (train, held_out) in enumerate(split({self._split})):"
        take = "X.take({})" if self._is_of_events else "X.iloc[{}]"
        rows, others = take.format("train"), take.format("held_out")
        yield from (f"        {line}" for line in self._fit(rows))
        yield f"        losses.append(loss(model, {others}, y[held_out]))"
        trial = ", the trial had {LOSSES[fold]:.6g}" if self._losses else ""
        yield f'        print(f"fold {{fold}}: {{losses[-1]:.6g}}{trial}")'
        trial = ", the trial had {np.mean(LOSSES):.6g}" if self._losses else ""
        yield f'    print(f"mean {self._metric.name}: {{np.mean(losses):.6g}}{trial}")'

    def _fit(self, rows: str) -> Iterator[str]:
        if self._is_fitted_apart:
            yield f"model = fitted(pipeline(fold), {rows}, y[train])"
        elif self._weighted:
            yield 'weights = compute_sample_weight("balanced", y[train])'
            names = [json.dumps(f"{n}__sample_weight", ensure_ascii=False) for n in self._weighted]
            given = ", ".join(f"{name}: weights" for name in names)
            yield f"model = pipeline(fold).fit({rows}, y[train], **{{{given}}})"
        else:
            yield f"model = pipeline(fold).fit({rows}, y[train])"
