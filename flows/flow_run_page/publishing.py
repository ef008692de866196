"""Artifacts of a flow run in Prefect, made once and then updated in place.

Each version of an artifact stays for good, and Prefect's client would send an event with each
update that holds all of its data: so neither is made anew.
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
    """The content of an artifact.

    Attributes:
        key: Its key; artifacts of one key are versions of one thing.
        kind: `markdown`, `table` or `progress`.
        data: Its content.
        description: One line of markdown.
    """

    key: str
    kind: str
    data: Any
    description: str


def artifact_key(name: str, part: str) -> str:
    """Return the key of an artifact of something with that name.

    >>> artifact_key("responders", "trials"), artifact_key("A.b", "trials")
    ('responders-trials', 'a-b-4ff54a-trials')
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if plain != name:  # or `a.b` and `a_b` would be versions of one thing
        plain = f"{plain}-{sha256(name.encode()).hexdigest()[:_DIGEST]}".lstrip("-")
    return f"{plain}-{part}"


@dataclass
class Publisher:
    """Publishes pages of one flow run; made and used in one thread, and closed there.

    Its client is its own: those of a flow run must not be shared among threads.

    Attributes:
        flow_run_id: The flow run.
        published: What was published last, and the id of its artifact, by key.
    """

    flow_run_id: UUID
    published: dict[str, tuple[Page, UUID]] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _client: Any = None

    def close(self) -> None:
        """Close its connections."""
        self._stack.close()

    def publish(self, *pages: Page) -> None:
        """Publish what has changed.

        Raises:
            Exception: If the server does not answer; what was published by then stays.
        """
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
        """Return the artifact that an earlier process of the flow run has made, if there is one."""
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
    """Update an artifact, without an event; return False where it was deleted."""
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
