"""Continuous integration: valid workflows, with the same commands that people use."""

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
OTHERS = ["brew install libomp", "uv build", "uvx twine check --strict dist/*"]


def jobs() -> Iterator[dict[str, Any]]:
    for workflow in WORKFLOWS.values():
        yield from workflow["jobs"].values()


def commands(job: dict[str, Any]) -> list[str]:
    """Return the commands of a job, once for each cell of its matrix."""
    cells = job.get("strategy", {}).get("matrix", {}).get("include", [{}])
    runs = [step["run"] for step in job.get("steps", ()) if "run" in step]
    pattern = re.compile(r"\$\{\{ matrix\.(\w+) \}\}")
    return [pattern.sub(lambda found: cell[found[1]], run) for cell in cells for run in runs]  # noqa: B023


@pytest.mark.parametrize(
    "schema", ["vendor.github-workflows", "custom.github-workflows-require-timeout"]
)
def test_workflows_are_valid_and_have_timeouts(schema) -> None:
    command = ("check_jsonschema", "--builtin-schema", schema, *FOLDER.glob("*.yml"))
    subprocess.run([sys.executable, "-m", *command], check=True)


def test_workflows_and_hooks_run_documented_commands() -> None:
    """All commands are scripts of the repository, except commands that only runners need."""
    ran = [command for job in jobs() for command in commands(job)]
    others = [c for c in ran if c not in OTHERS and "GITHUB_REF_NAME" not in c]
    assert {"tests/run", "tests/run all", "tests/run quick"} <= set(others)
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    others += [hook["entry"] for repository in repositories for hook in repository["hooks"]]
    for command in others:
        words = shlex.split(command)
        assert os.access(ROOT / words[0], os.X_OK), command
        assert all((ROOT / word).exists() for word in words if "/" in word), command


def test_every_python_version_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = re.findall(r":: (3\.\d+)\n", "\n".join([*project["classifiers"], ""]))
    cells = WORKFLOWS["tests"]["jobs"]["tests"]["strategy"]["matrix"]["include"]
    assert {cell["python"] for cell in cells} == set(versions)
    assert {cell["os"] for cell in cells} == {"ubuntu-latest", "macos-latest"}


def test_only_the_publishing_job_has_more_than_read_permission() -> None:
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
        ("v1.2.3", "## [Unreleased]", False),
    ],
)
def test_tag_is_released_only_if_it_matches_version_and_changelog(
    tag, heading, passes, tmp_path
) -> None:
    """Runs the step itself, with a `uv` that knows the version."""
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
