"""The recorded benchmark of tools as a chart: test losses relative to prefect-tune."""

import pandas as pd
from peer_tools.report import RECORDED, ratio

__all__ = ["benchmark_chart"]

TOOLS = {"flaml": "FLAML", "optuna": "Optuna", "smac": "SMAC3", "autogluon": "AutoGluon"}
WIDTH, LEFT, PERCENT = 760, 242, 8.4
"""Width, place of the zero line, and width of one percent, in pixels."""
ROW, TOP, GAP = 24, 98, 12
STYLE = """
  .page { fill: #ffffff } .text { fill: #1f2328 } .quiet { fill: #59636e }
  .bar { fill: #0072b2 } .zero { stroke: #1f2328 } .error { stroke: #59636e }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .text { fill: #f0f6fc } .quiet { fill: #9198a1 }
    .bar { fill: #3f93cc } .zero { stroke: #f0f6fc } .error { stroke: #9198a1 }
  }
  text { font: 14px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
  .title { font-size: 17px; font-weight: 600 }
"""


def benchmark_chart() -> str:
    """Return the chart as SVG with its own background, so that any page can show it."""
    answers = pd.read_parquet(RECORDED).query("model == 'answer'")
    parts, y = list[str](), TOP
    for stage, rows in answers.groupby("stage"):
        of_tools = dict(list(rows.groupby("tool")))
        parts.append(_text(24, y + 16, f"after {stage:g} s"))
        for tool in filter(of_tools.__contains__, TOOLS):
            parts += _bar(y, TOOLS[tool], *ratio(of_tools[tool], of_tools["ours"])[:2])
            y += ROW
        y += GAP
    n_tables = answers["table"].nunique()
    title = "Test loss of other tools, compared with prefect-tune"
    about = (
        f"Geometric mean of {n_tables} tables, one core; longer bars are worse. "
        "Thin lines: one standard error."
    )
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 4}" role="img">',
        f"<title>{title}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{y + 4}" rx="8"/>',
        _text(24, 34, title, "text title"),
        _text(24, 58, about, "quiet"),
        _text(LEFT, TOP - 12, "prefect-tune", "text", "middle"),
        f'<path class="zero" d="M{LEFT} {TOP - 6}V{y - GAP + 4}"/>',
        *parts,
        "</svg>\n",
    ])  # fmt: skip


def _bar(y: int, name: str, mean: float, error: float) -> list[str]:
    """Return the row of a tool: the name, a bar with the standard error, and the figure."""
    width, half = (100 * PERCENT * value for value in (mean - 1, error))
    end, middle = LEFT + width, y + 11
    return [
        _text(LEFT - 44, y + 16, name, "text", "end"),
        f'<rect class="bar" x="{LEFT}" y="{y + 3}" width="{width:.1f}" height="{ROW - 8}"/>',
        f'<path class="error" d="M{end - half:.1f} {middle}H{end + half:.1f}"/>',
        _text(end + half + 10, y + 16, f"{100 * (mean - 1):+.0f}%"),
    ]


def _text(x: float, y: float, text: str, kind: str = "text", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>'
