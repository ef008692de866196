"""Two small finished studies, for all tests that only read results.

`s` has failures, a constraint and an ensemble of two trials; `h`, by Hyperband, has partial trials
on some folds. Both use a table with a column whose name contains Markdown.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from command_line import CommandLine
from inputs import table
from user_spaces import PRELUDE

from finished.searched import searched
from prefect_tune import ArtifactStore, load_study
from prefect_tune.flows.results.loaded_study import LoadedStudy

NASTY = "a|b <i>*"
SPACE = (
    PRELUDE
    + """
from ConfigSpace import Categorical
from prefect_tune.tasks.catalogue.flash import CLASSIFY
from prefect_tune.tasks.catalogue.preparation import RESCALE


class Picky(GaussianNB):
    def __init__(self, kind="new"):
        super().__init__()
        self.kind = kind

    def fit(self, X, y):
        raise ValueError(f"picky [about] {self.kind}")


known = CLASSIFY.algorithm("gaussian_nb"), CLASSIFY.algorithm("k_nearest")
broken = one("broken", Picky, Categorical("kind", ["new", "old"]))
space = models(*known, broken, before=(RESCALE,))
whole = models(*known, before=(RESCALE,))
"""
)


@dataclass(frozen=True)
class Ended:
    """The studies, and the folder of their files.

    Attributes:
        folder: Folder of the table, the file with the spaces, and the home with the store.
        store: Store of the studies `s` and `h`.
    """

    folder: Path
    store: ArtifactStore

    @property
    def run(self) -> CommandLine:
        """Return the command line with this home."""
        return CommandLine(self.folder / "home")

    def load(self, name: str = "s") -> LoadedStudy:
        return load_study(name, str(self.folder / "home" / "store"))

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """Make the studies in a folder."""
        (folder / "space.py").write_text(SPACE)
        data = folder / "table.csv"
        table().rename(columns={"c": NASTY}).to_csv(data, index=False)
        given: dict[str, Any] = {"data": str(data), "target": "target"}
        partial = {"method": "hyperband", "option": {"fidelity": "folds"}, "fit": False}
        of_models = f"{folder}/space.py:whole"
        searched(folder / "home", **given, **partial, study="h", space=of_models, trials=6)
        bounds = {"constraint": ["model_size_bytes<=1000000"], "ensemble": 3}
        of_all = f"{folder}/space.py:space"
        ended = searched(folder / "home", **given, **bounds, space=of_all, trials=9, seed=1)
        return cls(folder, ended.store)
