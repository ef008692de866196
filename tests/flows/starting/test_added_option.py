"""One field in the table and a parameter in the three signatures make an option whole."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from source_tree import ROOT

FIELD = """
    whisper: float | None = declare(
        "How loudly trials may speak.",
        group="Budget", metavar="TIME", written=DURATION, default_text="silence", standard=5.0,
        examples=("90s",), on_resume="same", choices=lambda: ("5m", "90s"), is_open=True,
    )
"""
TIMEOUT = "    trial_timeout: str | None = None"
SIGNATURES = {
    "flows/tune.py": f"{TIMEOUT},\n    trial_memory: str | None = None,\n    series",
    "flows/compare.py": f"{TIMEOUT},\n",
    "deployments/estimator/pipeline_search.py": f"    {TIMEOUT},\n",
}
"""The line before which the parameter goes, by the file of the signature."""

PROGRAM = """
import json
from pathlib import Path
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from mkdocs_click._docs import make_command_docs
from prefect.utilities.callables import parameter_schema
import prefect_tune
from prefect_tune import PipelineSearch
from prefect_tune.deployments.cli.command import main
from prefect_tune.flows.compare import compare
from prefect_tune.flows.options.declared import OPTIONS, StudyOptions
from prefect_tune.flows.starting.prepare import prepare
from prefect_tune.flows.starting.study_input import StudyRequest
from prefect_tune.flows.reading.commands import run_command
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.tune import tune
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.bad_input import BadInput


def entered(**more):
    request = StudyRequest.parse({"data": "sklearn:iris", "study": "s", "store": "store", **more})
    return prepare(request, request.open_store())


def refused(**more):
    try:
        entered(**more)
    except BadInput as error:
        return str(error)


searched = {}
PipelineSearch._run = lambda _, given: searched.update(given)  # the parameters of `tune`
PipelineSearch(whisper="9s").fit([[0.0], [1.0]] * 9, [0, 1] * 9)
prepared = entered(whisper="90s")
stored = Ledger(prepared.store.database).study("s")
complete = ShellComplete(main, {}, "prefect-tune", "_PREFECT_TUNE_COMPLETE")
print(json.dumps({
    "package": prefect_tune.__file__,
    "help": [CliRunner().invoke(main, [c, "--help"]).output for c in ("run", "compare")],
    "forms": [parameter_schema(flow).properties["whisper"] for flow in (tune, compare)],
    "nonsense": refused(whisper="loud"),
    "json": stored.settings["options"]["whisper"],
    "plan": StudyPlan.from_stored(stored).options.whisper,
    "resumed": entered().plan.options.whisper,
    "another": refused(whisper="7s"),
    "command": run_command(prepared.plan, "s"),
    "completed": [i.value for i in complete.get_completions(["run", "x"], "--whi")],
    "values": [i.value for i in complete.get_completions(["run", "x", "--whisper"], "9")],
    "search": searched["whisper"],
    "docs": "\\n".join(make_command_docs("prefect-tune run", main.commands["run"])),
}))
"""


@pytest.mark.slow
def test_an_option_in_the_table_is_everywhere(tmp_path: Path) -> None:
    package = tmp_path / "prefect_tune"
    ignored = shutil.ignore_patterns("__pycache__", "docs")
    shutil.copytree(ROOT / "deployments" / "package", package, ignore=ignored)
    for room in ("deployments", "flows", "optimizers", "storage", "tasks"):
        shutil.copytree(ROOT / room, package / room, ignore=ignored)
    table = package / "flows/options/declared.py"
    text = table.read_text()
    table.write_text(text.replace("    trial_timeout:", f"{FIELD}    trial_timeout:", 1))
    for name, before in SIGNATURES.items():
        text = (package / name).read_text()
        assert text.count(before) == 1, name
        indent = before[: len(before) - len(before.lstrip())]
        text = text.replace(before, f"{indent}whisper: str | None = None,\n{before}")
        attribute = "        self.trial_timeout,"
        text = text.replace(attribute, f"        self.whisper = whisper\n{attribute}")
        (package / name).write_text(text)
    environment = {
        **os.environ, "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path / "home"),
        "PREFECT_TUNE_HOME": str(tmp_path / "home"),
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["package"].startswith(str(tmp_path))
    for page in (*found["help"], found["docs"]):
        assert "--whisper TIME" in page
        assert "silence" in page
    for form in found["forms"]:
        assert form["title"] == "Budget: whisper"
        assert "pattern" in str(form)
        assert "How loudly" in form["description"]
    assert found["nonsense"].startswith("--whisper loud: ")
    assert found["json"] == found["plan"] == found["resumed"] == 90.0
    assert "--whisper 90s" in found["another"]
    assert found["command"][-4:-2] == ["--whisper", "90s"]
    assert (found["completed"], found["values"]) == (["--whisper"], ["90s"])
    assert found["search"] == "9s"
