"""Continuous integration: valid workflows, whose commands are those of people, and its hooks."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from source_tree import ROOT

pytestmark = pytest.mark.tools

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yml"))}
HOOKS = ROOT / ".pre-commit-config.yaml"
OTHERS = ["brew install libomp", "uv build", "uvx twine check --strict dist/*"]


def jobs() -> Iterator[dict[str, Any]]:
    for workflow in WORKFLOWS.values():
        yield from workflow["jobs"].values()


def commands(job: dict[str, Any]) -> list[str]:
    """What a job runs, once for each cell of its matrix."""
    cells = job.get("strategy", {}).get("matrix", {}).get("include", [{}])
    runs = [step["run"] for step in job.get("steps", ()) if "run" in step]
    pattern = re.compile(r"\$\{\{ matrix\.(\w+) \}\}")
    return [pattern.sub(lambda found: cell[found[1]], run) for cell in cells for run in runs]  # noqa: B023


@pytest.mark.parametrize(
    "schema", ["vendor.github-workflows", "custom.github-workflows-require-timeout"]
)
def test_workflows_are_valid_and_end(schema) -> None:
    command = ("check_jsonschema", "--builtin-schema", schema, *FOLDER.glob("*.yml"))
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_workflows_run_what_people_run() -> None:
    """All commands are scripts of the repository, but for those that only runners need."""
    ran = [command for job in jobs() for command in commands(job)]
    others = [c for c in ran if c not in OTHERS and "GITHUB_REF_NAME" not in c]
    assert {"tests/run", "tests/run all", "tests/run quick"} <= set(others)
    for command in others:
        script = ROOT / shlex.split(command)[0]
        assert os.access(script, os.X_OK), command
        assert script.is_relative_to(ROOT)
        assert all((ROOT / w).exists() for w in shlex.split(command) if "/" in w), command


def test_every_version_of_python_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = re.findall(r":: (3\.\d+)\n", "\n".join([*project["classifiers"], ""]))
    oldest, *between, newest = versions
    cells = WORKFLOWS["tests"]["jobs"]["tests"]["strategy"]["matrix"]["include"]
    linux, macos = "ubuntu-latest", "macos-latest"
    assert {(cell["os"], cell["python"], cell["command"]) for cell in cells} == {
        (linux, oldest, "tests/run quick tests/project"),
        (linux, oldest, "tests/run"),
        (linux, newest, "tests/run --cov"),
        *((linux, version, "tests/run quick") for version in between),
        (macos, between[-1], "tests/run quick"),
        (linux, between[-1], "deployments/docs/build"),
    }


def test_only_the_job_that_publishes_may_do_more_than_read() -> None:
    assert all(w["permissions"] == {"contents": "read"} for w in WORKFLOWS.values())
    publish = WORKFLOWS["release"]["jobs"]["publish"]
    assert [job["permissions"] for job in jobs() if "permissions" in job] == [{"id-token": "write"}]
    assert publish["environment"] == "pypi"
    assert {"tests", "extra", "build"} == set(publish["needs"])


@pytest.mark.parametrize(
    ("tag", "heading", "passes"),
    [
        ("v1.2.3", "## [1.2.3] - 2026-01-02", True),
        ("v1.2.4", "## [1.2.3] - 2026-01-02", False),
        ("1.2.3", "## [1.2.3] - 2026-01-02", False),
        ("v1.2.3", "## [Unreleased]", False),
    ],
)
def test_a_tag_is_released_only_if_it_is_the_version_and_in_the_changelog(
    tag, heading, passes, tmp_path
) -> None:
    """The step itself, with a `uv` that knows the version."""
    (step,) = (c for c in commands(WORKFLOWS["release"]["jobs"]["build"]) if "REF_NAME" in c)
    (tmp_path / "uv").write_text('#!/bin/sh\ntest "$*" = "version --short" && echo 1.2.3\n')
    (tmp_path / "uv").chmod(0o755)
    changes = tmp_path / "deployments" / "docs" / "pages" / "changes.md"
    changes.parent.mkdir(parents=True)
    changes.write_text(f"# Changelog\n\n{heading}\n")
    done = subprocess.run(
        ["bash", "-e", "-c", step],
        cwd=tmp_path,
        env={"GITHUB_REF_NAME": tag, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=False,
    )
    assert (done.returncode == 0) is passes


def hooks() -> list[dict[str, Any]]:
    return [h for repo in yaml.safe_load(HOOKS.read_text())["repos"] for h in repo["hooks"]]


def test_hooks_are_valid(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-config", HOOKS],
        env={**os.environ, "PRE_COMMIT_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_hooks_check_what_quick_checks() -> None:
    """The tools that `test_checks.py` and this file run, on the modules that there are by then."""
    programs = [hook["entry"].split()[0] for hook in hooks()]
    assert programs[0] == "deployments/install"
    assert [program for program in programs if not os.access(ROOT / program, os.X_OK)] == []
    entries = [hook["entry"].removeprefix(".venv/bin/") for hook in hooks()]
    tools = ("ruff check", "ruff format", "mypy", "mypy tests/typing", "pyright", "lint-imports")
    for tool in (*tools, "check-jsonschema --builtin-schema vendor.github-workflows"):
        assert any(re.match(rf"{tool}(?! \w)", entry) for entry in entries), tool
    assert {hook["language"] for hook in hooks()} == {"system"}
    of_the_tree = [hook for hook in hooks() if not hook.get("pass_filenames", True)]
    assert all(hook["always_run"] for hook in of_the_tree)
