"""Declared metrics, options, sections, formats and methods are registered everywhere."""

from inspect import getmembers, isfunction, signature
from typing import Any

import pytest
from source_tree import modules

from prefect_tune import PipelineSearch
from prefect_tune.deployments.report.study_page import _SECTIONS
from prefect_tune.flows.options.declared import OPTIONS
from prefect_tune.optimizers import METHODS, Method, UnknownName
from prefect_tune.tasks.data.formats.format import FORMATS, Format
from prefect_tune.tasks.objective.metric import metric_named

OF_FIT = {"data", "target", "seed"}
"""Options that are arguments of `fit`, or have scikit-learn's name."""
OF_FILES = {"labels", "format", "test", "splits", "drop_missing_target"}
"""Options that say how files are read; a search has X and y."""
OF_SERIES = {"series", "if_unchanged", "key", "promotion", "margin"}
"""Options of studies that are repeated on growing data."""


def declared(folder: str, kind: type[Any]) -> list[Any]:
    return [value for m in modules(folder) for _, value in getmembers(m) if isinstance(value, kind)]


def test_every_registered_metric_can_be_chosen() -> None:
    with pytest.raises(UnknownName) as unknown:
        metric_named("")
    assert sorted(OPTIONS["metric"].known) == sorted(unknown.value.known)


def test_options_of_the_tune_flow_are_parameters_of_the_estimator() -> None:
    of_search = set(signature(PipelineSearch).parameters) & set(OPTIONS)
    assert of_search | OF_FIT | OF_FILES | OF_SERIES == set(OPTIONS)


def test_all_declared_report_sections_are_on_the_report_page() -> None:
    written = {
        name
        for module in modules("deployments/report/figures")
        for name, _ in getmembers(module, isfunction)
        if name.endswith("_section")
    }
    assert written <= {section.__name__ for section in _SECTIONS}


def test_declared_formats_and_methods_are_registered() -> None:
    formats = declared("tasks/data/formats", Format)
    methods = declared("optimizers/methods", Method)
    assert [one.name for one in formats if FORMATS.get(one.name) is not one] == []
    assert [one.name for one in methods if METHODS.get(one.name) is not one] == []
