"""Artifacts of a flow run in Prefect, created once and then updated in place.

Prefect keeps every version of an artifact, and its client sends an event with all data on each
update. Updating in place without events avoids both.
"""

import re
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    ArtifactFilterKey,
)
from prefect.exceptions import PrefectHTTPStatusError

_DIGEST = 6
_TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Page:
    """Content of an artifact.

    Attributes:
        kind: `markdown`, `table` or `progress`.
        description: One line of Markdown.
    """

    key: str
    kind: str
    data: Any
    description: str


def artifact_key(name: str, part: str) -> str:
    """Return the artifact key for a part of the page named `name`.

    >>> artifact_key("responders", "trials"), artifact_key("A.b", "trials")
    ('responders-trials', 'a-b-4ff54a-trials')
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if plain != name:  # else `a.b` and `a_b` would be versions of one artifact
        plain = f"{plain}-{sha256(name.encode()).hexdigest()[:_DIGEST]}".lstrip("-")
    return f"{plain}-{part}"


@dataclass
class Publisher:
    """Publishes pages of one flow run with its own client; use and close it in one thread."""

    flow_run_id: UUID
    published: dict[str, tuple[Page, UUID]] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _client: Any = None

    def close(self) -> None:
        """Close the connections."""
        self._stack.close()

    def publish(self, *pages: Page) -> None:
        """Publish changed pages; raise the error of a server that does not answer."""
        for page in pages:
            known, artifact_id = self.published.get(page.key, (None, None))
            if known == page:
                continue
            client = self._connected()
            artifact_id = artifact_id or self._find(client, page.key)
            if artifact_id is None or not _update(client, artifact_id, page):
                artifact_id = self._create(client, page)
            self.published[page.key] = page, artifact_id

    def _connected(self) -> Any:
        if self._client is None:
            own = get_client(httpx_settings={"timeout": _TIMEOUT_SECONDS}, sync_client=True)
            self._client = self._stack.enter_context(own)
        return self._client

    def _find(self, client: Any, key: str) -> UUID | None:
        """Return the artifact created by an earlier process of the flow run, if any."""
        found = client.read_artifacts(
            artifact_filter=ArtifactFilter(
                flow_run_id=ArtifactFilterFlowRunId(any_=[self.flow_run_id]),
                key=ArtifactFilterKey(any_=[key]),
            ),
            limit=1,
        )
        return found[0].id if found else None

    def _create(self, client: Any, page: Page) -> UUID:
        return client.create_artifact(
            ArtifactCreate(
                key=page.key,
                type=page.kind,
                data=page.data,
                description=page.description,
                flow_run_id=self.flow_run_id,
            )
        ).id


def _update(client: Any, artifact_id: UUID, page: Page) -> bool:
    """Update an artifact without an event; return False if it was deleted."""
    update = ArtifactUpdate(data=page.data, description=page.description)
    try:
        client.request(
            "PATCH",
            "/artifacts/{id}",
            path_params={"id": artifact_id},
            json=update.model_dump(mode="json", exclude_unset=True),
        )
    except PrefectHTTPStatusError as error:
        if error.response.status_code != 404:
            raise
        return False
    return True
