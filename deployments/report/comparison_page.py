"""The page that reports a comparison: ranking, curves, and pairs of methods."""

import shlex
from collections.abc import Iterator, Sequence

import pandas as pd
import plotly.express as px

from prefect_tune.deployments.report.page import (
    STYLE,
    Command,
    Figure,
    ReportPage,
    Section,
    Table,
    visible_losses,
)
from prefect_tune.deployments.views.comparison import HOW_RANKED, facts, ranking
from prefect_tune.flows.comparison.standings import Standings
from prefect_tune.flows.reading.study_lines import StudyLine
from prefect_tune.flows.wording.text import LossWords

_MOST_STUDIES = 3
_HOW_DRAWN = "Medians of the studies; a study without a score so far is the worst."
_HOW_PAIRED = (
    "Blocks won and lost, and p of the distance between both ranks if all methods are equal "
    "(permutation test of all methods together)."
)


def comparison_page(
    standings: Standings,
    curves: pd.DataFrame,
    files: Sequence[str],
    store_options: Sequence[str] = (),
) -> ReportPage:
    """Return the page of a comparison. `store_options` are added to the printed commands."""
    studies = curves.study.unique()[:_MOST_STUDIES] if standings.comparison else ()
    words = [["standings", *files], *(["report", study, *store_options] for study in studies)]
    shown, best = ranking(standings), standings.methods.iloc[0]
    tested = f"median {LossWords(standings.metric).named(best.median_test_loss)} on the test rows"
    ranks = Table.of("Ranking", shown, is_open=True)
    won_lost = standings.pairs.rename(columns={"n_won": "won", "n_lost": "lost", "p_value": "p"})
    pairs = Table.of("Pairs", won_lost, is_open=True)
    return ReportPage(
        title=standings.comparison or " and ".join(files[:3]),
        kind="Comparison",
        state="",
        facts=facts(standings),
        headline="" if pd.isna(best.median_test_loss) else f"{best.method}: {tested}",
        lines=[
            *(StudyLine((f"{method}: rank {rank}",)) for method, rank, *_ in shown.to_numpy()),
            *(StudyLine((text,), tone="warning") for text in standings.warnings),
        ],
        commands=[Command(shlex.join(["prefect-tune", *command])) for command in words],
        sections=[
            Section("ranks", "Ranking", HOW_RANKED, [ranks]),
            Section("curves", "Best score over the budget", _HOW_DRAWN, list(_curves(curves))),
            Section("pairs", "Pairs of methods", _HOW_PAIRED, [pairs]),
        ],
    )


def _curves(curves: pd.DataFrame) -> Iterator[Figure]:
    for _, of_set in curves.groupby(["dataset", "metric"], sort=False):
        unit = "trials" if of_set.budget_seconds.isna().all() else "seconds"
        studies = of_set.pivot_table(
            index=unit, columns=["method", "study"], values="incumbent_loss", aggfunc="last"
        )
        losses = studies.astype(float).ffill().fillna(float("inf"))
        medians = losses.T.groupby("method", sort=False).median().T.replace(float("inf"), None)
        first = of_set.iloc[0]
        words = LossWords(first.metric)
        labels = {"value": f"cross-validated {words.axis}", "trials": "configurations"}
        numbers = medians.map(words.number, na_action="ignore")
        plot = px.line(numbers, line_shape="hv", labels=labels, **STYLE)
        plot.update_yaxes(range=visible_losses(of_set.incumbent_loss.dropna(), words))
        yield Figure(f"Best {words.name} on {first.data}", plot, 420)
