"""A separate command line for each test, and golden files of command output."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine

CHANGES = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", "DATE"),
    (r"\b[0-9a-f]{12,64}\b", "KEY"),
    (r"\d[\d.,]* ?[KMG]?B\b", "SIZE"),
    (r"\d[\d.]*s\b", "SECONDS"),
    (r"model_size_bytes(:?|<=1000000) +[\d,]+", r"model_size_bytes\1 BYTES"),
    (r"cache: .*", "cache: ..."),
    (r", served \d+ times", ", served N times"),
    (r"process \d+ on [\w.-]+", "process N on HOST"),
    (r"Known: .*", "Known: ..."),
    (r"(?m)^time\n(.+\n)+", "time\n ...\n"),
    (r"(?m)^traceback\n(.+\n)+", "traceback\n ...\n"),
    (r" {3,}|(?<=\S)  (?=\S)", "  "),
    (r"(?m)[ ─-]+$", ""),
)
"""What differs from run to run or with versions of libraries, and the words that replace it."""


@pytest.fixture
def run(tmp_path) -> CommandLine:
    return CommandLine(tmp_path / "home")


@pytest.fixture
def check_printed(file_regression: Any) -> Callable[..., None]:
    """Compare printed text with the golden file of that name, without variable parts."""

    def check(text: str, name: str, *folders: Path) -> None:
        for folder in folders:
            text = text.replace(str(folder), "FOLDER")
        for pattern, word in CHANGES:
            text = re.sub(pattern, word, text)
        file_regression.check(text, basename=name)

    return check


@pytest.fixture
def check_fields(file_regression: Any) -> Callable[..., None]:
    """Compare names and types of JSON fields with the golden file of that name."""

    def fields(value: Any, depth: int) -> Any:
        if isinstance(value, dict) and value and depth:
            return {name: fields(item, depth - 1) for name, item in value.items()}
        if isinstance(value, list) and value:
            return [fields(value[0], depth)]
        return type(value).__name__

    def check(documents: dict[str, Any], name: str, depth: int = 3) -> None:
        found = {command: fields(document, depth) for command, document in documents.items()}
        file_regression.check(json.dumps(found, indent=1), basename=name, extension=".json")

    return check
