"""Python expressions as values: what they call, what they import, and what differs by fold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

__all__ = [
    "Call",
    "Expression",
    "Group",
    "Literal",
    "Name",
    "PerFold",
    "is_per_fold",
    "merged",
    "names_in",
]


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, text, truth value or None, as Python writes it."""

    text: str


@dataclass(frozen=True, slots=True)
class Name:
    """A class or function that is imported.

    Attributes:
        module: Where it is imported from.
        name: Its name there.
    """

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class Group:
    """A list, tuple or dict.

    Attributes:
        brackets: The opening and the closing one.
        items: Its items; of a dict, keys and values in turn.
    """

    brackets: str
    items: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a class or function, or of a method of what another call returns.

    Attributes:
        called: What is called, or whose method.
        arguments: Names and values; of a position, the name is empty.
        method: Name of the method; empty where there is none.
    """

    called: "Expression"
    arguments: tuple[tuple[str, "Expression"], ...] = ()
    method: str = ""


@dataclass(frozen=True, slots=True)
class PerFold:
    """A value for each fold, where they differ."""

    values: tuple["Expression", ...]


Expression = Literal | Name | Group | Call | PerFold


def merged(of_folds: Sequence[Expression]) -> Expression:
    """Return one expression for those of all folds, with a value per fold as deep as can be.

    >>> merged([Group("[]", (Literal("1"), Literal(seed))) for seed in "23"]).items[1]
    PerFold(values=(Literal(text='2'), Literal(text='3')))
    """
    first = of_folds[0]
    if all(other == first for other in of_folds):
        return first
    match first:
        case Call(called, arguments, method):
            names = [name for name, _ in arguments]
            if all(
                isinstance(other, Call)
                and (other.called, other.method) == (called, method)
                and [name for name, _ in other.arguments] == names
                for other in of_folds
            ):
                values = zip(*([v for _, v in o.arguments] for o in of_folds), strict=True)  # type: ignore[union-attr]
                return replace(first, arguments=tuple(zip(names, map(merged, values), strict=True)))
            if method and all(isinstance(o, Call) and o.method == method for o in of_folds):
                return replace(first, called=merged([o.called for o in of_folds]))  # type: ignore[union-attr]
        case Group(brackets, items):
            if all(
                isinstance(other, Group)
                and other.brackets == brackets
                and len(other.items) == len(items)
                for other in of_folds
            ):
                columns = zip(*(o.items for o in of_folds), strict=True)  # type: ignore[union-attr]
                return replace(first, items=tuple(map(merged, columns)))
    return PerFold(tuple(of_folds))


def names_in(expression: Expression) -> Iterator[Name]:
    """Yield everything that an expression imports."""
    if isinstance(expression, Name):
        yield expression
    for part in _parts(expression):
        yield from names_in(part)


def is_per_fold(expression: Expression) -> bool:
    """Return whether anything in an expression differs between folds."""
    return isinstance(expression, PerFold) or any(map(is_per_fold, _parts(expression)))


def _parts(expression: Expression) -> Iterator[Expression]:
    match expression:
        case Group(_, parts) | PerFold(parts):
            yield from parts
        case Call(called, arguments):
            yield called
            yield from (value for _, value in arguments)
