"""A synthetic cohort as files."""

import pytest

pytestmark = pytest.mark.usefixtures("server")


def test_a_cohort_is_written_once_and_can_be_tuned_on(run, tmp_path) -> None:
    out = tmp_path / "new" / "meds"
    name = "demo?n_patients=60&noise_codes=0"
    written = run.json("cohort", name, "--out", out)
    assert written["patients"] == 60
    assert written["truth"]["aggregation"] == "average"
    assert [path.name for path in out.parent.iterdir()] == ["meds"]
    assert (out / written["labels"]).is_dir()
    again = run("cohort", name, "--out", out)
    assert again.exit_code == 2
    assert "already exists; choose an empty or new folder" in again.stderr
    unknown = run("cohort", "demo?famly=sum", "--out", tmp_path / "other")
    assert unknown.exit_code == 2
    assert "Did you mean 'family'" in unknown.stderr
    assert not (tmp_path / "other").exists()
