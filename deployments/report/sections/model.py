"""The final model: its members, and the second look at the finalists."""

from collections.abc import Iterator

from prefect_tune.deployments.report.page import Figure, Section, Table
from prefect_tune.deployments.report.plots import axis, bar, plot
from prefect_tune.deployments.report.wording import LossWords, pipeline_rows, short_number
from prefect_tune.flows.reporting.study_report import EnsembleMember, StudyReport
from prefect_tune.flows.text import counted


def model_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if there is more to say of the model than the first screen does."""
    words, members = LossWords(report.summary["metric"]), report.members
    parts = [*_ensemble(report, words), *_kinds(report, words), *_finalists(report, words)]
    if parts and members:
        yield Section("model", "The final model", _finding(report, words), parts)


def path_text(member: EnsembleMember) -> str:
    """Return the algorithms of a member that do something."""
    said = [algorithm for _, algorithm, _ in pipeline_rows(member.configuration)]
    return " > ".join(algorithm for algorithm in said if algorithm != "none") or "none"


def _finding(report: StudyReport, words: LossWords) -> str:
    members, summary = report.members, report.summary
    if len(members) == 1:
        return f"Trial {members[0].trial} alone is the model."
    tested = ""
    if summary["test_loss"] is not None and summary["single_best_test_loss"] is not None:
        gain = summary["single_best_test_loss"] - summary["test_loss"]
        alone = words.of(summary["single_best_test_loss"])
        how = "better than" if gain > 0 else "no better than"
        tested = (
            f"; on the test rows {words.of(summary['test_loss'])}, {how} the best trial's {alone}"
        )
    if summary["test_loss_undefined"]:
        tested = f"; its loss on the test rows is undefined: {summary['test_loss_undefined']}"
    kind = (summary["ensemble"] or {}).get("kind", "method")
    kind = f"{kind} ensemble" if kind != "method" else "ensemble of the method"
    article = "An" if kind[0] in "aeiou" else "A"
    return f"{article} {kind} of {counted(len(members), 'trial')} is the model{tested}."


def _ensemble(report: StudyReport, words: LossWords) -> Iterator[Figure | Table]:
    members = report.members
    if len(members) < 2:
        return
    labels = [f"trial {member.trial}" for member in members]
    hover = [f"{100 * m.weight:.1f} %: {path_text(m)}, {words.of(m.loss)}" for m in members]
    trace = bar("weight", labels, [100 * m.weight for m in members], "var(--c0)", hover=hover)
    layout = {"xaxis": axis("weight, %"), "yaxis": axis("", autorange="reversed", type="category")}
    height = 110 + 26 * len(members)
    yield Figure("members", "Weights of the members", plot([trace], **layout), height)
    rows = [
        [str(m.trial), f"{100 * m.weight:.1f} %", words.of(m.loss), path_text(m)] for m in members
    ]
    columns = ["#trial", "#weight", f"#cross-validated {words.name}", "pipeline"]
    yield Table("Members of the ensemble", columns, rows)


def _kinds(report: StudyReport, words: LossWords) -> Iterator[Table]:
    nested = (report.summary["ensemble"] or {}).get("nested") or {}
    if nested:
        rows = [[kind, words.of(loss)] for kind, loss in nested.items()]
        columns = ["kind", f"#{words.name} on rows that it was not built on"]
        yield Table("Kinds of models compared", columns, rows)


def _finalists(report: StudyReport, words: LossWords) -> Iterator[Table]:
    looks = report.summary["finalists"]
    if looks:
        rows = [
            [
                str(look["trial"]),
                words.of(look["loss"]),
                "failed" if look["again"] is None else words.of(look["again"]),
                "-" if look["again"] is None else short_number((look["loss"] + look["again"]) / 2),
            ]
            for look in looks
        ]
        columns = ["#trial", f"#{words.name} in the search", "#on another split", "#mean"]
        yield Table("Finalists looked at again", columns, rows, is_open=True)
