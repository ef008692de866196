"""The lines of Python that load an exported model."""

import json
from collections.abc import Iterator, Sequence

__all__ = ["loading_code"]


def loading_code(file: str, file_format: str, trusted: Sequence[str]) -> Iterator[str]:
    r"""Yield the lines that load a model.

    Args:
        file: Name of its file.
        file_format: `pickle` or `skops`.
        trusted: Of skops' format, the types that must be trusted.

    >>> print("\n".join(loading_code("model.pkl", "pickle", ())))
    import pickle
    <BLANKLINE>
    with open("model.pkl", "rb") as file:
        model = pickle.load(file)
    """
    if file_format == "skops":
        yield "import skops.io"
        yield ""
        yield "trusted = ["
        yield from (f"    {json.dumps(kind)}," for kind in trusted)
        yield "]"
        yield f"model = skops.io.load({json.dumps(file)}, trusted=trusted)"
    else:
        yield "import pickle"
        yield ""
        yield f'with open({json.dumps(file)}, "rb") as file:'
        yield "    model = pickle.load(file)"
