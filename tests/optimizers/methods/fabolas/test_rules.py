import ast
import re
from dataclasses import fields
from pathlib import Path

from prefect_tune.optimizers.methods.fabolas import rules
from prefect_tune.optimizers.methods.fabolas.rules import Rules

TABLE = Path(rules.__file__)
NAMES = {field.name for field in fields(Rules)}


def test_each_rule_has_its_reason_behind_it() -> None:
    (table,) = [n for n in ast.parse(TABLE.read_text()).body if isinstance(n, ast.ClassDef)]
    explained = set()
    for rule, reason in zip(table.body, table.body[1:], strict=False):
        if isinstance(rule, ast.AnnAssign) and isinstance(reason, ast.Expr):
            assert isinstance(rule.target, ast.Name)
            explained.add(rule.target.id)
    assert explained == NAMES


def test_each_rule_decides_something() -> None:
    others = [p.read_text() for p in TABLE.parent.glob("*.py") if p != TABLE]
    used = {name for text in others for name in re.findall(r"\bRULES\.(\w+)", text)}
    assert used == NAMES
