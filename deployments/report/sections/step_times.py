"""Where the time went, what the cache served and saved, and what was evicted."""

from collections.abc import Iterator

from prefect_tune.deployments.report.page import Figure, Part, Section, Table
from prefect_tune.deployments.report.plots import axis, bar, plot
from prefect_tune.flows.reporting.study_report import StudyReport
from prefect_tune.flows.text import counted, format_bytes, format_seconds


def step_times_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if any step ran."""
    if report.step_times:
        parts: list[Part] = [_figure(report), _table(report)]
        yield Section("time", "Where the time went", _finding(report), parts)


def _finding(report: StudyReport) -> str:
    steps, seconds = report.step_times, report.summary["seconds"]
    made = sum(step.made_seconds for step in steps)
    longest = max(steps, key=lambda step: step.made_seconds)
    share = 100 * longest.made_seconds / made if made else 0.0
    saved = sum(step.saved_seconds for step in steps)
    n_evicted = sum(step.evicted for step in steps)
    n_refused = sum(step.refused for step in steps)
    said = (
        f"{longest.step} took {share:.0f} % of the {format_seconds(made)} spent making steps; the "
        f"cache saved {format_seconds(max(saved, 0))}, and choosing configurations took "
        f"{format_seconds(seconds['asking'])}"
    )
    if n_evicted:
        gone = sum(step.evicted_bytes for step in steps)
        said += f"; {counted(n_evicted, 'artifact')} ({format_bytes(gone)}) evicted since"
    if n_refused:
        said += f"; no room for {counted(n_refused, 'artifact')}"
    return f"{said[0].upper()}{said[1:]}."


def _figure(report: StudyReport) -> Figure:
    steps = report.step_times
    labels = [step.step for step in steps]
    made = [f"{s.step}: made {s.made:,} times in {format_seconds(s.made_seconds)}" for s in steps]
    saved = [
        f"{s.step}: served {s.served:,} times, {format_seconds(max(s.saved_seconds, 0))} saved"
        for s in steps
    ]
    traces = [
        bar("made", labels, [s.made_seconds for s in steps], "var(--c0)", hover=made),
        bar(
            "saved by the cache",
            labels,
            [max(s.saved_seconds, 0) for s in steps],
            "var(--c2)",
            hover=saved,
        ),
    ]
    layout = {
        "xaxis": axis("seconds, all trials together"),
        "yaxis": axis("", autorange="reversed", type="category"),
        "barmode": "stack",
    }
    height = 120 + 32 * len(steps)
    return Figure("time-steps", "Seconds by step", plot(traces, **layout), height)


def _table(report: StudyReport) -> Table:
    rows = [
        [
            s.step,
            f"{s.made:,}",
            format_seconds(s.made_seconds),
            f"{s.served:,}",
            format_seconds(max(s.saved_seconds, 0)),
            format_seconds(s.load_seconds),
            f"{s.kept:,} ({format_bytes(s.kept_bytes)})",
            f"{s.evicted:,} ({format_bytes(s.evicted_bytes)})",
            f"{s.refused:,}",
        ]
        for s in report.step_times
    ]
    columns = [
        "step", "#made", "#in", "#served", "#saved", "#reading", "#in the cache", "#evicted",
        "#refused",
    ]  # fmt: skip
    return Table("Steps of all folds of all trials", columns, rows)
