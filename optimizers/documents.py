"""JSON documents of dataclasses (trials, memos, plans, reports) and hyperparameter values.

A class defines its own `to_json` or `from_json` if the conversion needs a space, or if the document
differs from the fields of the class. Only the first conversion imports msgspec, because `--help`
and completion import the classes without converting any of them.

A hyperparameter's value may be any value with a stable name: a number or string, None, a tuple,
list or dict of such values, a function or class of a module, or an object with parameters, such as
an estimator.

The module also formats configurations and fidelities as text, and reports unknown names.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from inspect import Parameter, signature
from math import isclose, isfinite
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


def to_document(value: "DataclassInstance", **documents: Any) -> dict[str, Any]:
    """Return a dataclass as JSON values.

    `documents` contains fields that are already converted to JSON.
    """
    from msgspec import to_builtins  # noqa: PLC0415 - see above

    if not documents:
        return to_builtins(value, enc_hook=_plain)
    values = {f.name: documents.get(f.name, getattr(value, f.name)) for f in fields(value)}
    return to_builtins(values, enc_hook=_plain)


def json_values(value: Any) -> Any:
    """Return a document with tuples replaced by lists, like a document read from JSON."""
    if isinstance(value, Mapping):
        return {name: json_values(part) for name, part in value.items()}
    return [*map(json_values, value)] if isinstance(value, list | tuple) else value


def from_document(cls: type[T], document: Any) -> T:
    """Return an instance of a dataclass from JSON values.

    Values that are already instances stay unchanged. Missing fields get their defaults, and unknown
    keys are skipped, because other versions may write more or fewer fields.

    Raises:
        ValueError: If a field without a default is missing, or a value has the wrong type or is
            rejected by its class. The message names the place in the document.
    """
    from msgspec import ValidationError, convert  # noqa: PLC0415 - see above

    try:
        return convert(document, cls)
    except ValidationError as error:
        raise ValueError(f"{cls.__name__}: {error}") from error


def _plain(value: Any) -> Any:
    kinds: dict[type, Callable[[Any], Any]] = {float: float, str: str, Mapping: dict}
    for kind, plain in kinds.items():
        if isinstance(value, kind):
            return plain(value)
    raise TypeError(f"a value of type {type(value).__name__} cannot be written as JSON")


Document = bool | int | float | str | None


def value_document(value: Any) -> Document:
    """Return a value as JSON. A value that JSON cannot represent becomes a string of Python code.

    Different values have different documents, and a value has the same document in every process.
    Raises ValueError if an object has no stable name.

    >>> value_document(0.5), value_document((50, 50)), value_document([None, {"f": print}])
    (0.5, '(50, 50)', "[None, {'f': builtins.print}]")
    """
    value = plain_value(value)
    is_plain = value is None or isinstance(value, bool | int | float | str)
    return value if is_plain and (not isinstance(value, float) or isfinite(value)) else _code(value)


def plain_value(value: Any) -> Any:
    """Return a value, converted to a Python number if the value is a numpy scalar."""
    return value.item() if hasattr(value, "dtype") and getattr(value, "shape", 0) == () else value


def choices_of(hyperparameter: Any) -> Sequence[Any] | None:
    """Return all values of a categorical, ordinal or constant hyperparameter; None for a range."""
    listed = getattr(hyperparameter, "choices", getattr(hyperparameter, "sequence", None))
    if listed is not None:
        return tuple(listed)
    return (hyperparameter.value,) if hasattr(hyperparameter, "value") else None


def value_of(hyperparameter: Any, document: Any) -> Any:
    """Return a hyperparameter's value from its document; raises ValueError if no value matches.

    A list also matches a tuple with the same items, because JSON has no tuples.
    """
    choices, wanted = choices_of(hyperparameter), _comparable(document)
    if choices is None:
        if not isinstance(document, bool) and hyperparameter.legal_value(document):
            return document
        choices = ()
    for forms in (choices, json_values([*choices])):
        documents = [*map(_comparable, forms)]
        if wanted in documents:
            return choices[documents.index(wanted)]
    raise ValueError(
        f"hyperparameter {hyperparameter.name}={document!r} must be {range_text(hyperparameter)}"
    )


def _comparable(value: Any) -> tuple[bool, Document]:
    """Return a value's document in a form that distinguishes true from 1."""
    document = value_document(value)
    return isinstance(document, bool), document


def _code(value: Any) -> str:
    value = plain_value(value)
    if type(value) is dict:
        return f"{{{', '.join(f'{_code(k)}: {_code(v)}' for k, v in value.items())}}}"
    if type(value) in (list, tuple):
        items = ", ".join(map(_code, value))
        if isinstance(value, list):
            return f"[{items}]"
        return f"({items},)" if len(value) == 1 else f"({items})"
    if hasattr(value, "__name__") and isinstance(getattr(value, "__self__", None), _OF_A_MODULE):
        return _dotted_name(value)
    if hasattr(value, "get_params") and hasattr(value, "set_params"):
        accepted, arguments = signature(type(value)).parameters, []
        for name, given in sorted(value.get_params(deep=False).items()):
            default = accepted[name].default if name in accepted else Parameter.empty
            is_given = default is Parameter.empty
            if is_given or (given is not default and _code(given) != _code(default)):
                arguments.append(f"{name}={_code(given)}")
        return f"{_dotted_name(type(value))}({', '.join(arguments)})"
    code = repr(value)
    if " at 0x" in code or isinstance(value, set | frozenset) or hasattr(value, "dtype"):
        raise ValueError(f"{code} cannot be written as code for another process")
    return code


_OF_A_MODULE = (ModuleType, type(None))
"""Types of `__self__` for module-level functions; a bound method's `__self__` has another type."""


def _dotted_name(value: Any) -> str:
    module = getattr(value, "__module__", None) or type(value).__module__
    name = f"{module}.{getattr(value, '__qualname__', value.__name__)}"
    if "<" in name:
        raise ValueError(f"{name} cannot be imported by another process; define it in a module")
    return name


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to `name`; None if no name is similar.

    >>> nearest("standardize", ["standardize", "minmax"])
    'standardize'
    """
    lowered = {k.lower(): k for k in known}
    found = get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    return lowered[found[0]] if found else None


class UnknownName(ValueError):  # noqa: N818 - the name states the problem, as KeyError does
    """A name is unknown. The message suggests a name and lists the known names.

    The suggestion is `guess` or, if `guess` is missing, the most similar name.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], guess: str = "") -> None:
        self.kind, self.name, self.known = kind, name, tuple(known)
        likely = guess or nearest(name, self.known)
        hint = f" Did you mean {likely!r}?" if likely else ""
        shown = ", ".join(self.known[:30]) or "none"
        more = f" and {len(self.known) - 30} more" if len(self.known) > 30 else ""
        super().__init__(f"unknown {kind} {name!r}.{hint} Known: {shown}{more}.")


def pipeline_lines(configuration: Mapping[str, Any]) -> list[str]:
    """Return the lines that show a configuration in JSON form, one line per step.

    >>> pipeline_lines({"model": {"algorithm": "svm", "hyperparameters": {"C": 1 / 3}}})
    ['model  svm (C=0.3333)']
    """
    width = max(map(len, configuration))
    lines = []
    for step, choice in configuration.items():
        values = ", ".join(values_text(choice["hyperparameters"]))
        lines.append(f"{step:<{width}}  {choice['algorithm']}" + (f" ({values})" if values else ""))
    return lines


def values_text(hyperparameters: Mapping[str, Any]) -> list[str]:
    """Return the name and value of each hyperparameter as text.

    >>> values_text({"C": 1 / 3, "kernel": "rbf"})
    ['C=0.3333', 'kernel=rbf']
    """
    return [f"{name}={value_text(value)}" for name, value in hyperparameters.items()]


def range_text(hyperparameter: Any) -> str:
    """Describe the range of a ConfigSpace hyperparameter as text for users.

    >>> from ConfigSpace import Categorical, Float
    >>> range_text(Float("C", (2**-5, 2**15), log=True)), range_text(Categorical("p", [1, 2]))
    ('a number from 0.03125 to 32768', 'one of 1, 2')
    """
    if hasattr(hyperparameter, "value"):
        return str(hyperparameter.value)
    if (choices := choices_of(hyperparameter)) is not None:
        return f"one of {', '.join(value_text(value_document(c)) for c in choices)}"
    lower, upper = hyperparameter.lower, hyperparameter.upper
    kind = "a whole number" if isinstance(lower, int) else "a number"
    return f"{kind} from {lower:g} to {upper:g}"


def fidelity_text(
    query: Mapping[str, Any], n_folds: int | None = None, epochs: int | None = None
) -> str:
    """Describe the fidelity of a query in JSON form; empty for a full evaluation.

    `n_folds` and `epochs` are the numbers of folds and epochs of a full evaluation; None if
    unknown.

    >>> fidelity_text({"subset": 1 / 9, "subset_draw": 0, "folds": 1, "epochs": None}, n_folds=3)
    'subset 1/9, folds 1 of 3'
    """
    parts = []
    subset, draw = query.get("subset", 1.0), query.get("subset_draw", 0)
    if subset < 1:
        parts_of_all = round(1 / subset)
        is_part = isclose(parts_of_all * subset, 1)
        parts.append(f"subset 1/{parts_of_all}" if is_part else f"subset {subset:.3g}")
        if draw:
            parts.append(f"draw {draw}")
    for name, whole in (("folds", n_folds), ("epochs", epochs)):
        if (asked := query.get(name)) is not None:
            parts.append(f"{name} {asked}" + (f" of {whole}" if whole else ""))
    return ", ".join(parts)


def value_text(value: Any) -> str:
    """Return a hyperparameter's JSON value as text, with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else _OF_A_FILE.sub("", str(value))


_OF_A_FILE = re.compile(r"prefect_tune_user_code_\w+\.")
"""Name of the module of a user's file. `tasks.user_code` derives the name from the file's text."""
