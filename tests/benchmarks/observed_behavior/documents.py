"""Output of `show`, `trials`, `report` and `compare` for three recorded studies and a comparison.

    python -m observed_behavior.documents record INPUTS FOLDER
    python -m observed_behavior.documents read FOLDER OUT.json

The old side records the store, and each side reads a copy, so seconds and times are equal. A new
side with a changed schema reads the store after its upgrade.
"""

import argparse
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from observed_behavior.product import in_home, printed_json
from prefect_tune import compare, local_server, tune

__all__ = ["NOT_COMPARED", "STUDIES", "main"]

STUDIES: Mapping[str, Mapping[str, Any]] = {
    "constrained": {
        "data": "classes.csv", "method": "flash", "space": "small", "trials": 12, "race": True,
        "constraint": ["model_size_bytes<=4000"],
    },
    "epochs": {
        "data": "whole.csv", "method": "hyperband", "space": "random_forest", "trials": 8,
        "epochs": 9,
    },
    "failures": {
        "data": "whole.csv", "method": "admm", "space": "failing.py:space", "trials": 10,
    },
}  # fmt: skip
"""By study, parameters of `tune`; each shows other parts of the documents."""
COMMON = {"target": "target", "workers": 1, "folds": 3, "seed": 5, "trial_timeout": "5m"}
COMPARED = {
    "data": "whole.csv", "space": "small", "methods": "random,tpe", "repeats": 2, "trials": 3,
    "name": "compared", "race": False,
}  # fmt: skip
NOT_COMPARED = {"version", "versions", "curves"}
"""Keys that may differ: versions of packages, and the path of the file that a comparison writes."""


def record(inputs: Path, folder: Path) -> None:
    """Run the studies and the comparison, with their inputs, in a folder."""
    shutil.copytree(inputs, folder / "inputs")
    with local_server():
        for study, parameters in STUDIES.items():
            tune(**_parameters({**COMMON, "study": study, **parameters}, folder))
        compare(**_parameters({**COMMON, **COMPARED}, folder))


def observed(folder: Path) -> dict[str, Any]:
    """Return the documents of all studies of a recorded folder, with its path removed."""
    found: dict[str, Any] = {}

    def shown(*words: object) -> Any:
        return printed_json(*words, "--store", folder / "store")

    for study in STUDIES:
        found[study] = {name: shown(name, study) for name in ("show", "trials", "report")}
        found[study]["trials --failed"] = shown("trials", study, "--failed")
        numbers = [trial["number"] for trial in found[study]["trials"]]
        found[study]["show --trial"] = {str(n): shown("show", study, "--trial", n) for n in numbers}
    with local_server():
        outcome = compare(**_parameters({**COMMON, **COMPARED}, folder))
    found["compared"] = {
        "compare": json.loads(json.dumps(outcome)),
        "standings": printed_json("standings", folder / "compared.parquet"),
        "study ls": shown("study", "ls"),
    }
    return json.loads(json.dumps(found).replace(str(folder), "STORE"))  # type: ignore[no-any-return]


def _parameters(parameters: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the parameters with paths in a recorded folder."""
    inputs = folder / "inputs"
    given = {**parameters, "store": str(folder / "store"), "data": str(inputs / parameters["data"])}
    if ".py:" in given["space"]:
        given["space"] = str(inputs / given["space"])
    if "name" in given:
        given["out"] = str(folder / "compared.parquet")
    return given


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording, reading = commands.add_parser("record"), commands.add_parser("read")
    recording.add_argument("inputs", type=Path)
    recording.add_argument("folder", type=Path)
    reading.add_argument("folder", type=Path)
    reading.add_argument("out", type=Path)
    chosen = parser.parse_args()
    with TemporaryDirectory() as home, in_home(Path(home)):
        if chosen.command == "record":
            record(chosen.inputs, chosen.folder)
        else:
            chosen.out.write_text(json.dumps(observed(chosen.folder), indent=1))


if __name__ == "__main__":
    main()
