"""KEY=VALUE words whose value looks like JSON where the job type takes a text: `prompt=5` is then the text 5.

Guards least surprise: a value is taken as JSON wherever that fits, and as the text that was typed only where nothing
else does. So a type that takes both gets the number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from holdbeat.domain.errors import HoldbeatError

if TYPE_CHECKING:
    from holdbeat.cli.backend import Backend

T = TypeVar("T")


def send_as_meant(
    backend: Backend,
    words: Sequence[str],
    request: Mapping[str, Any],
    send: Callable[[Mapping[str, Any]], T],
    *,
    field: str = "params",
) -> T:
    """Sends a request; if its params are refused, once more with texts for what fits as a text alone."""
    try:
        return send(request)
    except HoldbeatError as refused:
        if not (refused.field or "").startswith(f"{field}."):
            raise
        meant = {**request[field], **_texts(_schema(backend, request), words)}
        if meant == request[field]:
            raise
    return send({**request, field: meant})


def _schema(backend: Backend, request: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the job type that a request names, itself or by its template."""
    type_name = request.get("type")
    if type_name is None:
        template = request.get("template") or request.get("template_id")
        type_name = None if template is None else backend.get_template(template)["type"]
    for item in backend.job_types()["items"]:
        if type_name in (item["name"], *item["aliases"]):
            return dict(item["schema"])
    return {}


def _texts(schema: dict[str, Any], words: Sequence[str]) -> dict[str, str]:
    from holdbeat.cli.arguments import typed
    from holdbeat.domain.schema import matches

    texts = {}
    properties = schema.get("properties", {})
    for word in words:
        name, _, text = word.partition("=")
        part = properties.get(name)
        value = typed(text)
        if part is None or isinstance(value, str) or matches(part, value, root=schema):
            continue
        if matches(part, text, root=schema):
            texts[name] = text
    return texts
