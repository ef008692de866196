"""A model in skops' format, which runs nothing when it is read.

It names the types that it holds. Those that skops does not know are read only by who says that they
are trusted, and must be installed where it is read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.pipeline import Pipeline

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.exporting.plain import without_idle_bounds
from prefect_tune.tasks.user_code import is_user_code

_ALWAYS = ("numpy", "scipy", "sklearn", "skops")
_REMEDY = "export to a file that ends in .pkl"


@dataclass(frozen=True, slots=True)
class SkopsFile:
    """A model in skops' format.

    Attributes:
        data: The file.
        model: The model as it is read from it.
        trusted: Types that who reads it must trust, sorted.
    """

    data: bytes
    model: Any
    trusted: tuple[str, ...]

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages that reading imports, sorted."""
        named = {kind.partition(".")[0] for kind in self.trusted} - {"builtins"}
        return tuple(sorted({*_ALWAYS, *named}))


def skops_file(model: Any, trials: Sequence[int]) -> SkopsFile:
    """Write a model in skops' format, and read it back.

    Args:
        model: A fitted pipeline, or an ensemble of them.
        trials: Number of the trial that each pipeline comes from.

    Raises:
        BadInput: If skops is not installed or cannot hold one of its steps; names the step.
    """
    try:
        import skops.io  # noqa: F401, PLC0415 - of an extra
    except ImportError as error:
        raise BadInput(
            "skops' format needs skops, which is not installed",
            remedy="pip install 'prefect-tune[skops]', or export to a file that ends in .pkl",
        ) from error
    model = without_idle_bounds(model)
    try:
        found = _written(model)
    except Exception as error:  # of whatever it holds
        raise _refusal(model, trials) or BadInput(
            f"skops' format cannot hold the model: {_in_short(error)}", remedy=_REMEDY
        ) from error
    if any(map(is_user_code, found.trusted)):
        refusal = _refusal(model, trials)
        assert refusal is not None  # noqa: S101 - one of its steps has it
        raise refusal
    return found


def _written(model: Any) -> SkopsFile:
    import skops.io  # noqa: PLC0415 - of an extra

    data: bytes = skops.io.dumps(model)
    trusted = skops.io.get_untrusted_types(data=data)
    return SkopsFile(data, skops.io.loads(data, trusted=trusted), tuple(sorted(trusted)))


def _refusal(model: Any, trials: Sequence[int]) -> BadInput | None:
    """Return the error that names the first step that cannot be held; None if each can."""
    for where, part in _parts(model, trials):
        if reason := _why_not(part):
            name = type(part).__name__
            return BadInput(f"skops' format cannot hold {where} ({name}): {reason}", remedy=_REMEDY)
    return None


def _parts(model: Any, trials: Sequence[int]) -> Iterator[tuple[str, Any]]:
    """Yield what may be refused, and where it stands: each step of each pipeline."""
    pipelines = model.members_ if len(trials) > 1 else [model]
    for number, pipeline in zip(trials, pipelines, strict=True):
        of = f" of trial {number}" if len(pipelines) > 1 else ""
        steps = pipeline.steps if isinstance(pipeline, Pipeline) else [("model", pipeline)]
        for name, step in steps:
            yield f"step {name!r}{of}", step


def _why_not(step: Any) -> str:
    """Return why skops cannot hold a step; empty if it can."""
    try:
        found = _written(step)
    except Exception as error:  # of whatever it holds
        return _in_short(error)
    if any(map(is_user_code, found.trusted)):
        return "its class is of a file of yours, which cannot be imported where it is read"
    return ""


def _in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".split("\n", 1)[0]
