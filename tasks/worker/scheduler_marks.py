"""Marks that a flow run leaves on a scheduler, which may be everybody's, and how they go with it.

The scheduler hands the plugin that keeps limits to all nannies, also to those that come later, and
keeps what it reports. A flow that was killed takes nothing back: its client is gone then. A plugin
misses its removal while its worker starts again. So each looks for itself whether it is to go.
"""

from typing import Any

from distributed.protocol.pickle import dumps

__all__ = ["is_wanted", "mark_of", "take_back"]

_PREFIX = "prefect-tune-limits-"


def mark_of(flow_run: str, client: str) -> str:
    """Return the name of what a flow run leaves on a scheduler.

    Args:
        flow_run: Id of the flow run.
        client: Id of its Dask client.
    """
    return f"{_PREFIX}{flow_run} {client}"


async def take_back(mark: str, dask_scheduler: Any) -> None:
    """Take back a mark, and all those whose client is gone; runs on the scheduler."""
    for name in list(dask_scheduler.nanny_plugins):
        if name.startswith(_PREFIX) and (name == mark or not _has_client(name, dask_scheduler)):
            await dask_scheduler.unregister_nanny_plugin(None, name)
    topics = dask_scheduler._broker._topics  # noqa: SLF001 - it forgets none by itself
    for name in [n for n in topics if n.startswith(_PREFIX)]:
        if name not in dask_scheduler.nanny_plugins:
            del topics[name]


async def is_wanted(mark: str, nanny: Any) -> bool:
    """Ask the scheduler of a nanny whether a mark is to stay; also true when it cannot say."""
    call = {"function": dumps(_is_wanted), "args": dumps((mark,)), "kwargs": dumps({})}
    try:
        answer = await nanny.scheduler.run_function(**call, wait=True)
    except OSError:
        return True
    return answer["status"] != "OK" or bool(answer["result"])


def _is_wanted(mark: str, dask_scheduler: Any) -> bool:
    return mark in dask_scheduler.nanny_plugins and _has_client(mark, dask_scheduler)


def _has_client(mark: str, dask_scheduler: Any) -> bool:
    return mark.rpartition(" ")[2] in dask_scheduler.clients
