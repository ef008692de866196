"""Declaration of `--method flash`, and how its decisions are shown."""

from collections.abc import Iterator, Mapping
from typing import Any

from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.flash.options import FlashOptions
from prefect_tune.optimizers.space.rendering import pipeline_lines

__all__ = ["FLASH"]


def _render(decisions: Mapping[str, Any]) -> list[str]:
    """Return what people are shown of `Flash.decisions`."""
    return [*_phases(decisions), *_shared(decisions), *_subspace(decisions)]


def _phases(decisions: Mapping[str, Any]) -> Iterator[str]:
    if "n_prune" in decisions:
        n_known = min(decisions.get("n_known", 0), decisions["n_init"])
        of_design = _counted(decisions["n_init"] - n_known, "trial") + " of its design"
        parts = [_counted(n_known, "known pipeline")] if n_known else []
        parts += [of_design] if decisions["n_init"] > n_known else []
        parts.append(f"{decisions['n_prune']} by expected improvement per second")
        yield f"flash began with {', '.join(parts[:-1])} and {parts[-1]}"


def _shared(decisions: Mapping[str, Any]) -> Iterator[str]:
    if "shared" in decisions:
        yield "best of what all paths share, and tried on all of them from then on:"
        yield from (f"  {line}" for line in pipeline_lines(decisions["shared"]))


def _subspace(decisions: Mapping[str, Any]) -> Iterator[str]:
    if "subspace" in decisions:
        paths = _counted(decisions["n_subspace_paths"], "path")
        yield f"flash kept {paths} to tune, all that combine these:"
        for step, algorithms in decisions["subspace"].items():
            yield f"  {step}: {', '.join(algorithms)}"


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


FLASH = Method(
    name="flash",
    purpose="a linear model prunes the algorithms of each step, then a forest tunes what is left; "
    "for spaces of many paths, and with the cache",
    implementation="prefect_tune.optimizers.methods.flash.flash:Flash",
    has_portfolio=True,
    is_raced=True,
    ensemble="auto",
    options=FlashOptions,
    draws_on_cost=True,
    render_decisions=_render,
)
