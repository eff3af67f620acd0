# Made from asynchronous/client.py by tools/unasync.py: change that one, then run `python -m tools.unasync`.
"""The whole client: jobs, schedules, and everything else that the API offers."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

from holdbeat.client.blocking.jobs import Jobs
from holdbeat.client.blocking.schedules import Endpoints, Schedules
from holdbeat.client.blocking.transport import if_match, segment, sent
from holdbeat.client.messages import COMMENT, Message
from holdbeat.client.slot_loan import SlotLoan, remote_slot
from holdbeat.schemas.base import Items, JsonObject, Page
from holdbeat.schemas.jobs import Explanation, LogLine
from holdbeat.schemas.limits import Limit
from holdbeat.schemas.system import (
    ApiKey,
    AttentionItem,
    BorrowedSlot,
    Chunk,
    Delivery,
    DirectAnswer,
    Event,
    JobType,
    NewApiKey,
    Reservation,
    ReservationDetail,
    Stats,
    Webhook,
    WebhookSecret,
    Worker,
)


class Client(Jobs):
    """The API of a server as methods. `url` and `key` default to HOLDBEAT_SERVER and HOLDBEAT_KEY.

    Answers are dictionaries as the API sends them. A refusal raises ProblemError, a server that cannot be reached
    Unavailable.
    """

    @property
    def schedules(self) -> Schedules:
        """The methods for schedules."""
        return Schedules(self)

    @property
    def endpoints(self) -> Endpoints:
        """The methods for endpoints: HTTP calls with a schedule."""
        return Endpoints(self)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- direct requests ----------------------------------------------------------------------------------

    def direct(
        self,
        type: str,
        params: Mapping[str, Any] | None = None,
        *,
        wait_s: float | None = None,
        preempt: bool = False,
    ) -> DirectAnswer:
        """Runs a job type in the next free slot, ahead of the queue, and waits for its result."""
        body = _direct_body(params, wait_s, preempt)
        return self.call("POST", f"/api/direct/{segment(type)}", body=body, timeout_s=None)

    def stream_direct(
        self,
        type: str,
        params: Mapping[str, Any] | None = None,
        *,
        wait_s: float | None = None,
        preempt: bool = False,
    ) -> Generator[Message, None, None]:
        """Runs a job type in the next free slot, and yields what happens: messages with `event` and `data`.

        The events are `waiting`, `granted`, `progress`, `chunk`, and last `result`. A failure raises ProblemError.
        """
        return self.one_stream(f"/api/direct/{segment(type)}", _direct_body(params, wait_s, preempt))

    def list_reservations(
        self, *, status: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Reservation]:
        """Lists direct requests, the newest first."""
        query = {"status": status, "limit": limit, "cursor": cursor}
        return self.call("GET", "/api/reservations", query=query)

    def get_reservation(self, reservation_id: str) -> ReservationDetail:
        """Reads one direct request."""
        return self.call("GET", f"/api/reservations/{segment(reservation_id)}")

    def follow_reservation_chunks(self, reservation_id: str, *, after: int = 0) -> Generator[Chunk, None, None]:
        """Yields what the handler of a direct request emits, as it does so, until the request has ended."""
        return self._follow(f"/api/reservations/{segment(reservation_id)}/chunks", "chunk", after)

    def explain_reservation(self, reservation_id: str) -> Explanation:
        """Says why a direct request waits or runs, or how it ended."""
        return self.call("GET", f"/api/reservations/{segment(reservation_id)}/explain")

    def cancel_reservation(self, reservation_id: str, reason: str | None = None) -> Reservation:
        """Cancels a direct request that waits or runs."""
        path = f"/api/reservations/{segment(reservation_id)}/cancel"
        return self.call("POST", path, body=sent(reason=reason))

    def get_reservation_logs(
        self, reservation_id: str, *, after: int | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[LogLine]:
        """Reads the log of a direct request."""
        query = {"after": after, "limit": limit, "cursor": cursor}
        path = f"/api/reservations/{segment(reservation_id)}/logs"
        return self.call("GET", path, query=query)

    def get_reservation_chunks(
        self, reservation_id: str, *, after: int | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Chunk]:
        """Reads what the handler of a direct request emitted."""
        query = {"after": after, "limit": limit, "cursor": cursor}
        path = f"/api/reservations/{segment(reservation_id)}/chunks"
        return self.call("GET", path, query=query)

    # --- slots to borrow ----------------------------------------------------------------------------------

    def slot(self, resource: str, *, ttl_s: float = 60, wait_s: float | None = None) -> SlotLoan:
        """A slot of the resource for work of your own, held while a `with` or `with` block runs."""
        return remote_slot(self.url, self._key, resource, ttl_s=ttl_s, wait_s=wait_s)

    def reserve_slot(self, resource: str, *, ttl_s: float | None = None, wait_s: float | None = None) -> BorrowedSlot:
        """Borrows the next free slot of a resource. It is lost after `ttl_s` unless it is extended."""
        body = sent(resource=resource, ttl_s=ttl_s, wait_s=wait_s)
        return self.call("POST", "/api/reservations", body=body, timeout_s=None)

    def extend_reservation(self, reservation_id: str, ttl_s: float | None = None) -> Reservation:
        """Holds a borrowed slot for longer."""
        path = f"/api/reservations/{segment(reservation_id)}/extend"
        return self.call("POST", path, body=sent(ttl_s=ttl_s), is_repeatable=True)

    def release_reservation(self, reservation_id: str) -> Reservation:
        """Gives a borrowed slot back."""
        path = f"/api/reservations/{segment(reservation_id)}/release"
        return self.call("POST", path, is_repeatable=True)

    # --- webhooks -----------------------------------------------------------------------------------------

    def create_webhook(self, url: str, *, events: Sequence[str] | None = None, secret: str | None = None) -> Webhook:
        """Makes a webhook. Only this answer contains the secret."""
        body = sent(url=url, events=None if events is None else [*events], secret=secret)
        return self.call("POST", "/api/webhooks", body=body)

    def list_webhooks(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Webhook]:
        """Lists webhooks, without their secrets."""
        return self.call("GET", "/api/webhooks", query={"limit": limit, "cursor": cursor})

    def get_webhook(self, webhook_id: str) -> Webhook:
        """Reads one webhook, without its secret."""
        return self.call("GET", f"/api/webhooks/{segment(webhook_id)}")

    def update_webhook(self, webhook_id: str, changes: Mapping[str, Any], *, version: int | None = None) -> Webhook:
        """Changes `url`, `events` or `enabled` of a webhook.

        With `version` the change is refused if somebody else changed it since.
        """
        path = f"/api/webhooks/{segment(webhook_id)}"
        return self.call("PATCH", path, body=changes, headers=if_match(version))

    def delete_webhook(self, webhook_id: str, *, version: int | None = None) -> None:
        """Deletes a webhook. With `version` that is refused if somebody else changed it since."""
        path = f"/api/webhooks/{segment(webhook_id)}"
        self.call("DELETE", path, headers=if_match(version), is_repeatable=False)

    def rotate_webhook(self, webhook_id: str, *, secret: str | None = None) -> Webhook:
        """Makes a new secret, which only this answer contains. For a day messages are signed with the old one too."""
        return self.call("POST", f"/api/webhooks/{segment(webhook_id)}/rotate", body=sent(secret=secret))

    def test_webhook(self, webhook_id: str) -> Delivery:
        """Sends a test message, `webhook.test`, to a webhook."""
        return self.call("POST", f"/api/webhooks/{segment(webhook_id)}/test")

    def webhook_secret(self) -> WebhookSecret:
        """The server's own secret, which signs messages to a plain `webhook_url`; needs the scope admin."""
        return self.call("GET", "/api/webhooks/secret")

    def rotate_webhook_secret(self, *, secret: str | None = None) -> WebhookSecret:
        """Makes a new secret for the server. For a day messages are signed with the old one too."""
        return self.call("POST", "/api/webhooks/secret/rotate", body=sent(secret=secret))

    def list_deliveries(
        self,
        *,
        job_id: str | None = None,
        webhook_id: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Delivery]:
        """Lists webhook messages that are pending, delivered or given up, the newest first."""
        query = {"job_id": job_id, "webhook_id": webhook_id, "status": status, "limit": limit, "cursor": cursor}
        return self.call("GET", "/api/deliveries", query=query)

    def get_delivery(self, delivery_id: str) -> Delivery:
        """Reads one webhook message and its attempts."""
        return self.call("GET", f"/api/deliveries/{segment(delivery_id)}")

    def redeliver(self, delivery_id: str) -> Delivery:
        """Sends a webhook message once more, with the same id."""
        return self.call("POST", f"/api/deliveries/{segment(delivery_id)}/redeliver")

    # --- the state of the whole ---------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Counts jobs, runs, resources and workers."""
        return self.call("GET", "/api/stats")

    def list_attention(self) -> Items[AttentionItem]:
        """Lists what a person should look at, with since when and what to do."""
        return self.call("GET", "/api/attention")

    def mark_attention_seen(self, name: str | None = None) -> Items[AttentionItem]:
        """Marks operational events as seen, of one name or all; answers what is left."""
        return self.call("POST", "/api/attention/seen", body=sent(name=name), is_repeatable=True)

    def list_limits(self) -> Items[Limit]:
        """Lists the limits in force, with the slots in use and the jobs that wait."""
        return self.call("GET", "/api/limits")

    def set_limit(self, name: str, changes: Mapping[str, Any]) -> Limit:
        """Sets fields of a limit, or makes a new one; all workers obey at once."""
        return self.call("PUT", f"/api/limits/{segment(name)}", body=changes, is_repeatable=True)

    def reset_limit(self, name: str) -> Items[Limit]:
        """Takes back what was set: what settings declare holds again; without such, no item is left."""
        return self.call("DELETE", f"/api/limits/{segment(name)}")

    def list_keys(self) -> Items[ApiKey]:
        """Lists all API keys by their first characters, revoked ones included; needs the scope admin."""
        return self.call("GET", "/api/keys")

    def create_key(self, name: str, *, scope: str = "write", expires_s: float | None = None) -> NewApiKey:
        """Creates an API key and answers it, this once; needs the scope admin, or a server without keys."""
        return self.call("POST", "/api/keys", body=sent(name=name, scope=scope, expires_s=expires_s))

    def revoke_key(self, key_id: str) -> ApiKey:
        """Revokes an API key at once; needs the scope admin."""
        return self.call("DELETE", f"/api/keys/{segment(key_id)}")

    def workers(self, *, all: bool | None = None, limit: int | None = 500, cursor: str | None = None) -> Page[Worker]:
        """Lists workers that are alive; with `all` also those that have stopped."""
        query = {"all": all, "limit": limit, "cursor": cursor}
        return self.call("GET", "/api/workers", query=query)

    def job_types(self, *, limit: int | None = 500, cursor: str | None = None) -> Page[JobType]:
        """Lists the job types that workers have announced, with the JSON schemas of their params."""
        return self.call("GET", "/api/job-types", query={"limit": limit, "cursor": cursor})

    def list_events(
        self,
        *,
        after: str | None = None,
        name: Sequence[str] | None = None,
        job_id: str | None = None,
        limit: int | None = None,
    ) -> Page[Event]:
        """Lists events, the oldest first; `after` is a `next_cursor` or the id of an event."""
        query = {"after": after, "name": name, "job_id": job_id, "limit": limit}
        return self.call("GET", "/api/events", query=query)

    def search_events(
        self,
        *,
        q: str | None = None,
        name: Sequence[str] | None = None,
        actor: str | None = None,
        job_id: str | None = None,
        schedule_id: str | None = None,
        worker_id: str | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Event]:
        """Finds events by text, name, actor, job, schedule, worker or time, the newest first."""
        query = {
            "q": q, "name": name, "actor": actor, "job_id": job_id, "schedule_id": schedule_id,
            "worker_id": worker_id, "since": since, "until": until, "limit": limit, "cursor": cursor,
        }  # fmt: skip
        return self.call("GET", "/api/events/search", query=query)

    def events(
        self, *, after: str | None = None, name: Sequence[str] | None = None, job_id: str | None = None
    ) -> Generator[Event, None, None]:
        """Yields events as they happen, without end; from the beginning of the log with `after="0"`."""
        query = {"after": after, "name": name, "job_id": job_id}
        with closing(self.messages("/api/events", query=query)) as messages:
            for message in messages:
                if message.event != COMMENT:
                    yield message.data

    def health(self) -> JsonObject:
        """Asks whether the server's process answers; needs no key."""
        return self.call("GET", "/healthz")

    def readiness(self) -> JsonObject:
        """Checks that the server can do its work; raises ProblemError with the status 503 if it cannot."""
        return self.call("GET", "/readyz", is_repeatable=False)

    def metrics(self) -> str:
        """Reads the metrics in the text format of Prometheus."""
        return (self.fetch("GET", "/metrics")).decode()


def _direct_body(params: Mapping[str, Any] | None, wait_s: float | None, preempt: bool) -> dict[str, Any]:
    return sent(params=dict(params or {}), wait_s=wait_s, preempt=preempt or None)
