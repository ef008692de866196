"""Expressions as the text of a program, in lines that fit."""

from collections.abc import Iterable, Mapping, Sequence

from prefect_tune.tasks.reproduction.expressions import (
    Call,
    Expression,
    Group,
    Literal,
    Name,
    PerFold,
    names_in,
)

__all__ = ["Imports", "written"]

WIDTH = 96
"""Of a line at most."""
_MANY = 6
_SHORT = 40
"""More parts than this, and none longer, share lines."""
_ABBREVIATED: Mapping[str, str] = {"numpy": "np", "pandas": "pd"}


class Imports:
    """The imports of a program, and how what is imported is called in it.

    Args:
        expressions: All that it has.
        aliases: Names that the program itself gives to modules, which it does not import.
    """

    def __init__(
        self, expressions: Iterable[Expression], aliases: Mapping[str, str] | None = None
    ) -> None:
        self._aliases = {**_ABBREVIATED, **(aliases or {})}
        self._names: dict[str, str] = {}
        self._found = sorted(
            {name for expression in expressions for name in names_in(expression)},
            key=lambda name: (name.module, name.name),
        )
        for name in self._found:
            if name.module not in self._aliases:
                self._names.setdefault(name.name, name.module)

    def called(self, name: Name) -> str:
        """Return how something that is imported is called."""
        if name.module in self._aliases:
            return f"{self._aliases[name.module]}.{name.name}"
        is_first = self._names[name.name] == name.module
        return name.name if is_first else f"{name.module}.{name.name}"

    def statements(self, more: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the statements that import it, and what else is named, by module.

        Args:
            more: By module, other names to import.
        """
        wanted: dict[str, set[str]] = {module: set(names) for module, names in more.items()}
        whole: set[str] = set()
        for name in self._found:
            if name.module in self._aliases:
                continue
            if self._names[name.name] == name.module:
                wanted.setdefault(name.module, set()).add(name.name)
            else:
                whole.add(name.module)
        imported = [f"import {module}" for module in sorted(whole)]
        return imported + [_import(module, sorted(wanted[module])) for module in sorted(wanted)]


def _import(module: str, names: Sequence[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return line
    listed = "\n".join(f"    {name}," for name in names)
    return f"from {module} import (\n{listed}\n)"


def written(expression: Expression, imports: Imports, indent: int = 0, before: int = 0) -> str:
    """Return the text of an expression.

    Args:
        expression: The expression.
        imports: How what it imports is called.
        indent: Spaces before the line on which it stands.
        before: Characters on that line besides.
    """
    line = _on_one_line(expression, imports)
    if indent + before + len(line) <= WIDTH:
        return line
    inner = indent + 4
    match expression:
        case Call(called, arguments, method):
            head = written(called, imports, indent, before)
            head += f".{method}" if method else ""
            in_line = _on_one_line(Call(Literal(""), arguments), imports)
            if "\n" in head and len(head.rsplit("\n", 1)[-1]) + len(in_line) <= WIDTH:
                return head + in_line
            parts = [
                f"{name}={written(value, imports, inner, len(name) + 2)}"
                if name
                else written(value, imports, inner, 1)
                for name, value in arguments
            ]
            return _broken(f"{head}(", parts, ")", indent)
        case Group(brackets, items):
            if brackets == "{}":
                parts = [
                    f"{_on_one_line(key, imports)}: {written(value, imports, inner, 1)}"
                    for key, value in zip(items[::2], items[1::2], strict=True)
                ]
            else:
                parts = [written(item, imports, inner, 1) for item in items]
            return _broken(brackets[0], parts, brackets[1], indent)
        case PerFold(values):
            parts = [written(value, imports, inner, 1) for value in values]
            return _broken("[", parts, "][fold]", indent)
    return line


def _on_one_line(expression: Expression, imports: Imports) -> str:
    match expression:
        case Literal(text):
            return text
        case Name():
            return imports.called(expression)
        case Call(called, arguments, method):
            head = _on_one_line(called, imports) + (f".{method}" if method else "")
            given = (
                f"{name}={_on_one_line(value, imports)}" if name else _on_one_line(value, imports)
                for name, value in arguments
            )
            return f"{head}({', '.join(given)})"
        case PerFold(values):
            return f"[{', '.join(_on_one_line(v, imports) for v in values)}][fold]"
        case Group(brackets, items):
            texts = [_on_one_line(item, imports) for item in items]
            if brackets == "{}":
                texts = [f"{k}: {v}" for k, v in zip(texts[::2], texts[1::2], strict=True)]
            comma = "," if brackets == "()" and len(texts) == 1 else ""
            return f"{brackets[0]}{', '.join(texts)}{comma}{brackets[1]}"


def _broken(opening: str, parts: Sequence[str], closing: str, indent: int) -> str:
    """Return parts on lines of their own; short ones share lines."""
    space = " " * (indent + 4)
    lines: list[str] = []
    is_short = len(parts) > _MANY and max(map(len, parts)) <= _SHORT
    for part in parts:
        if is_short and lines and len(lines[-1]) + len(part) + 2 <= WIDTH:
            lines[-1] += f" {part},"
        else:
            lines.append(f"{space}{part},")
    return "\n".join([opening, *lines, f"{' ' * indent}{closing}"])
