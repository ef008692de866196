from dataclasses import replace

import numpy as np
import pytest
from curve_worlds.nets import CURVES, T_MAX, curves_from, net, nets, stretch

from prefect_tune.optimizers.methods.bapi.declaration import BapiOptions, Settings, Sites
from prefect_tune.optimizers.methods.bapi.learner import CurveBelief, CurveLearner

LEVELS = np.linspace(0.1, 0.9, 6)


def learned(sites: Sites | None = "falling") -> CurveBelief:
    """Of curves that were seen for a fifth, one of them flat from the beginning."""
    settings = replace(Settings(), sites=sites)
    drops = 40.0 * LEVELS - 4.0
    losses = [[50.0 - drop * (1 - 3.0**-epoch) for epoch in range(4)] for drop in drops]
    curves = curves_from(*(stretch(i, net(x), losses[i]) for i, x in enumerate(LEVELS)))
    learner = CurveLearner(nets(), CURVES, settings, T_MAX)
    return learner.learn(list(curves.values()), {}, np.random.default_rng(0))[0]


def slopes(belief: CurveBelief) -> np.ndarray:
    rows = np.column_stack([LEVELS, np.full(6, 0.5)])
    return belief.process.slopes(belief.at(rows, T_MAX))[0]


def test_by_default_sites_stand_where_the_model_would_fall() -> None:
    nowhere, falling, everywhere = learned(None), learned(), learned("all")
    assert not len(nowhere.process.sites)
    assert (slopes(nowhere) < 0).any()
    assert 0 < len(falling.process.sites) < len(everywhere.process.sites) == 2 * len(LEVELS)
    assert (slopes(falling) >= -1e-9).all()


def test_the_paper_has_sites_at_all_curves_under_way() -> None:
    assert Settings.of(BapiOptions(variant="paper")).sites == "all"
    assert Settings.of(BapiOptions()).sites == "falling"


def test_curves_of_new_configurations_are_looked_at_whether_or_not_others_need_a_site() -> None:
    """Without sites of others too, and not at all where nothing is known of slopes."""
    everywhere, nowhere = learned("all"), learned(None)
    row = np.array([[0.97, 0.9]])
    plain = replace(everywhere, process=nowhere.process)
    assert (plain.curve(row) != nowhere.curve(row)).any()
    assert nowhere.curve(row) == pytest.approx(nowhere.curve(row, is_known=True))
