"""Cases of all methods for the contract tests in `contracts.optimizer`."""

from dataclasses import replace

from contracts.optimizer import OBJECTIVE, Case

EPOCHS = replace(
    OBJECTIVE, iterative=frozenset({"svm", "tree", "grid", "one", "any", "a0", "a1", "a2"})
)
"""The models of the suite's spaces that train in epochs: of each space at least one."""
OF_PATHS = (
    "random",
    "ers",
    "halving",
    "hyperband",
    "bohb",
    "smac",
    "tpe",
    "flash",
    "admm",
    "stepwise",
)
FIRST_THREE = {"n_first": 3}

ALL: dict[str, Case] = {
    **{name: Case(name) for name in OF_PATHS},
    "jopt": Case("jopt", tier="slow"),
    "stepwise": Case("stepwise"),
    "esmbo": Case("esmbo", tier="slow"),
    "ei": Case("ei", FIRST_THREE, tier="full"),
    "es": Case("es", FIRST_THREE, tier="full"),
    "mtbo": Case("mtbo", FIRST_THREE, tier="full"),
    "fabolas": Case("fabolas", FIRST_THREE, tier="slow"),
    "bapi": Case("bapi", {"p": 0.34, "n_first": 9}, EPOCHS, tier="slow"),
}
WHOLE = {name: ALL[name] for name in ("random", "flash", "hyperband", "fabolas", "bapi")}
"""Those that keep all of the contract, as each of them asks in its own way."""
BRIEF = {name: case for name, case in ALL.items() if name not in WHOLE}
