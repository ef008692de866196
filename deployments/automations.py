"""Automations on events of studies and series, deployed to a Prefect server from a file.

The file has Prefect's own format, except that actions name their blocks as `block: TYPE/NAME`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import ObjectNotFound
from pydantic import ValidationError

from prefect_tune.tasks.bad_input import BadInput


@dataclass(frozen=True)
class DeployedAutomation:
    """An automation on the server; actions of blocks that do not exist were `left_out`."""

    name: str
    is_enabled: bool
    actions: tuple[str, ...]
    left_out: tuple[str, ...]


def deploy_automations(file: str | None = None) -> list[DeployedAutomation]:
    """Create or update the automations of a file; the default is the file of this package.

    Actions whose block does not exist are left out, and an automation without any other action is
    skipped. Raises `BadInput` if the file cannot be read or no automation is left.
    """
    documents = _read(file)
    with get_client(sync_client=True) as client:
        found = [_with_blocks(client, document) for document in documents]
        deployed = [
            _deploy(client, document, left_out) for document, left_out in found if document.actions
        ]
    if not deployed:
        missing = dict.fromkeys(block for _, left_out in found for block in left_out)
        raise BadInput(
            f"no automation was created: the Prefect server has no block {' or '.join(missing)}",
            remedy="start `prefect-tune serve`, and create one in its UI under Blocks, with this "
            "type and name",
        )
    return deployed


def _read(file: str | None) -> list[dict[str, Any]]:
    try:
        if file is None:
            resource = files("prefect_tune.deployments").joinpath("automations.yaml")
            text = resource.read_text(encoding="utf-8")
        else:
            text = Path(file).read_text(encoding="utf-8")
        documents = yaml.safe_load(text)["automations"]
        return [
            {**document, "actions": [*map(dict, document["actions"])]} for document in documents
        ]
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"{file} cannot be read as automations: {error}",
            remedy="write it like deployments/automations.yaml of prefect-tune",
        ) from error


def _with_blocks(
    client: SyncPrefectClient, document: Mapping[str, Any]
) -> tuple[AutomationCore, list[str]]:
    """Return an automation with ids of blocks, and the blocks that do not exist."""
    actions, left_out = list[dict[str, Any]](), list[str]()
    for action in document["actions"]:
        block = action.get("block")
        if block is None:
            actions.append(action)
            continue
        kind, _, name = str(block).partition("/")
        if not (kind and name):
            raise BadInput(
                f"automation {document.get('name')!r} names the block {block!r}",
                remedy="write type and name of the block, such as block: webhook/prefect-tune",
            )
        try:
            block_id = client.read_block_document_by_name(name, kind).id
        except ObjectNotFound:
            left_out.append(block)
            continue
        others = {key: value for key, value in action.items() if key != "block"}
        actions.append({**others, "block_document_id": str(block_id)})
    try:
        return AutomationCore.model_validate({**document, "actions": actions}), left_out
    except ValidationError as error:
        raise BadInput(f"automation {document.get('name')!r} is not valid: {error}") from error


def _deploy(
    client: SyncPrefectClient, automation: AutomationCore, left_out: list[str]
) -> DeployedAutomation:
    former = client.read_automations_by_name(automation.name)
    if former:  # a restart does not switch an automation on again
        automation = automation.model_copy(update={"enabled": former[0].enabled})
        client.update_automation(former[0].id, automation)
    else:
        client.create_automation(automation)
    types = tuple(action.type for action in automation.actions)
    return DeployedAutomation(automation.name, automation.enabled, types, tuple(left_out))
