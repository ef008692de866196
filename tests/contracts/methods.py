"""The methods and variants that keep the contract of `contracts.optimizer`."""

from dataclasses import replace

from contracts.optimizer import OBJECTIVE, Case, Planted

EPOCHS = replace(
    OBJECTIVE, iterative=frozenset({"svm", "tree", "grid", "one", "any", "a0", "a1", "a2"})
)
"""The models of the suite's spaces that train in epochs: of each space at least one."""
MANY_ROWS = replace(OBJECTIVE, n_rows=90_000, n_rarest=30_000)
"""More than a race looks at first."""

FEW_WORLDS = Planted(worlds=4)
OF_PROCESSES = Planted(worlds=3)
IN_PARTS = Planted(worlds=2, work=20.0)


def _slow(cases: dict[str, Case]) -> dict[str, Case]:
    return {name: replace(case, tier="slow") for name, case in cases.items()}


METHODS_OF_PATHS: dict[str, Case] = {
    "random": Case("random", planted=None),  # it is what the others are compared with
    "ers": Case("ers", planted=None),  # its configurations are those of random search
    "halving": Case("halving"),
    "hyperband": Case("hyperband"),
    "bohb": Case("bohb"),
    "smac": Case("smac"),
    "tpe": Case("tpe"),
    "flash": Case("flash"),
    "admm": Case("admm"),
}
METHODS_OF_PROCESSES: dict[str, Case] = {
    "jopt": Case("jopt", planted=FEW_WORLDS, tier="slow"),
    "esmbo": Case("esmbo", planted=FEW_WORLDS, tier="slow"),
    "ei": Case("ei", {"n_first": 3}, planted=OF_PROCESSES, tier="slow"),
    "es": Case("es", {"n_first": 3}, planted=OF_PROCESSES, tier="full"),
    "mtbo": Case("mtbo", {"n_first": 3}, planted=IN_PARTS, tier="full"),
    "fabolas": Case("fabolas", {"n_first": 3}, planted=IN_PARTS, tier="slow"),
    "bapi": Case("bapi", {"p": 0.34, "n_first": 9}, EPOCHS, Planted(4, 20.0), tier="slow"),
}
OF_FULL_IN_BRIEF = _slow(
    {n: case for n, case in METHODS_OF_PROCESSES.items() if case.tier == "full"}
)
"""What keeps a part of the contract in `tests/run`, and all of it in `tests/run all`."""
VARIANTS_OF_PATHS: dict[str, Case] = _slow({
    "halving by folds": Case("halving", {"fidelity": "folds"}),
    "hyperband by subsets": Case("hyperband", {"fidelity": "subset"}),
    "bohb by folds": Case("bohb", {"fidelity": "folds"}),
    "flash of the paper": Case("flash", {"variant": "paper", "n_init": 4, "n_prune": 4}),
    "admm of the paper": Case("admm", {"variant": "paper"}),
    "admm in a trust region": Case("admm", {"theta_solver": "trust_region", "rho": 0.0}),
})  # fmt: skip
VARIANTS_OF_PROCESSES: dict[str, Case] = {
    "fabolas by default": Case("fabolas", tier="slow"),
    "fabolas of the paper": Case("fabolas", {"n_first": 3, "variant": "paper"}, tier="full"),
    "bapi by default": Case("bapi", objective=EPOCHS, tier="slow"),
    "bapi of the paper": Case("bapi", {"variant": "paper"}, EPOCHS, tier="full"),
}
RACED: dict[str, Case] = {
    "random": Case("random", is_raced=True),
    "tpe": Case("tpe", is_raced=True),
    **{name: Case(name, is_raced=True, tier="slow") for name in ("flash", "admm", "smac")},
}
RACED_ON_MANY_ROWS: dict[str, Case] = {
    "random": Case("random", objective=MANY_ROWS, is_raced=True),
    "flash": Case("flash", objective=MANY_ROWS, is_raced=True, tier="slow"),
    "tpe": Case("tpe", objective=MANY_ROWS, is_raced=True, tier="full"),
}
ALL: dict[str, Case] = {
    **METHODS_OF_PATHS,
    **METHODS_OF_PROCESSES,
    **VARIANTS_OF_PATHS,
    **VARIANTS_OF_PROCESSES,
}
WITH_PRIOR: dict[str, Case] = {
    name: replace(case, has_prior=True, tier="slow" if case.tier else "")
    for name, case in {
        **METHODS_OF_PATHS,
        **METHODS_OF_PROCESSES,
        "raced flash": RACED["flash"],
        "raced tpe on many rows": RACED_ON_MANY_ROWS["tpe"],
    }.items()
}
