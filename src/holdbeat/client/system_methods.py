"""Direct requests, borrowed slots, webhooks and the state of the whole, as methods of the client."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdbeat.client.method import calls, segment, sent, written_once
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


class SystemMethods:
    # --- direct requests ----------------------------------------------------------------------------------

    @written_once
    def direct(
        self: Any,
        type: str,
        params: Mapping[str, Any] | None = None,
        *,
        wait_s: float | None = None,
        preempt: bool = False,
    ) -> DirectAnswer:
        """Runs a job type in the next free slot, ahead of the queue, and waits for its result."""
        body = direct_body(params, wait_s, preempt)
        return self._call("POST", f"/api/direct/{segment(type)}", body=body, timeout_s=None)

    @calls("GET", "/api/reservations")
    def list_reservations(
        self, *, status: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Reservation]:
        """Lists direct requests, the newest first."""

    @calls("GET", "/api/reservations/{reservation_id}")
    def get_reservation(self, reservation_id: str) -> ReservationDetail:
        """Reads one direct request."""

    @calls("GET", "/api/reservations/{reservation_id}/explain")
    def explain_reservation(self, reservation_id: str) -> Explanation:
        """Says why a direct request waits or runs, or how it ended."""

    @calls("POST", "/api/reservations/{reservation_id}/cancel")
    def cancel_reservation(self, reservation_id: str, reason: str | None = None) -> Reservation:
        """Cancels a direct request that waits or runs."""

    @calls("GET", "/api/reservations/{reservation_id}/logs")
    def get_reservation_logs(
        self, reservation_id: str, *, after: int | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[LogLine]:
        """Reads the log of a direct request."""

    @calls("GET", "/api/reservations/{reservation_id}/chunks")
    def get_reservation_chunks(
        self, reservation_id: str, *, after: int | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Chunk]:
        """Reads what the handler of a direct request emitted."""

    # --- slots to borrow ----------------------------------------------------------------------------------

    def slot(self: Any, resource: str, *, ttl_s: float = 60, wait_s: float | None = None) -> SlotLoan:
        """A slot of the resource for work of your own, held while a `with` or `async with` block runs."""
        return remote_slot(self.url, self._key, resource, ttl_s=ttl_s, wait_s=wait_s)

    @calls("POST", "/api/reservations", timeout_s=None)
    def reserve_slot(self, resource: str, *, ttl_s: float | None = None, wait_s: float | None = None) -> BorrowedSlot:
        """Borrows the next free slot of a resource. It is lost after `ttl_s` unless it is extended."""

    @calls("POST", "/api/reservations/{reservation_id}/extend", is_repeatable=True)
    def extend_reservation(self, reservation_id: str, ttl_s: float | None = None) -> Reservation:
        """Holds a borrowed slot for longer."""

    @calls("POST", "/api/reservations/{reservation_id}/release", is_repeatable=True)
    def release_reservation(self, reservation_id: str) -> Reservation:
        """Gives a borrowed slot back."""

    # --- webhooks -----------------------------------------------------------------------------------------

    @calls("POST", "/api/webhooks")
    def create_webhook(self, url: str, *, events: Sequence[str] | None = None, secret: str | None = None) -> Webhook:
        """Makes a webhook. Only this answer contains the secret."""

    @calls("GET", "/api/webhooks")
    def list_webhooks(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Webhook]:
        """Lists webhooks, without their secrets."""

    @calls("GET", "/api/webhooks/{webhook_id}")
    def get_webhook(self, webhook_id: str) -> Webhook:
        """Reads one webhook, without its secret."""

    @calls("PATCH", "/api/webhooks/{webhook_id}", body="changes")
    def update_webhook(self, webhook_id: str, changes: Mapping[str, Any], *, version: int | None = None) -> Webhook:
        """Changes `url`, `events` or `enabled` of a webhook.

        With `version` the change is refused if somebody else changed it since.
        """

    @calls("DELETE", "/api/webhooks/{webhook_id}", is_repeatable=False)
    def delete_webhook(self, webhook_id: str, *, version: int | None = None) -> None:
        """Deletes a webhook. With `version` that is refused if somebody else changed it since."""

    @calls("POST", "/api/webhooks/{webhook_id}/rotate")
    def rotate_webhook(self, webhook_id: str, *, secret: str | None = None) -> Webhook:
        """Makes a new secret, which only this answer contains. For a day messages are signed with the old one too."""

    @calls("POST", "/api/webhooks/{webhook_id}/test")
    def test_webhook(self, webhook_id: str) -> Delivery:
        """Sends a test message, `webhook.test`, to a webhook."""

    @calls("GET", "/api/webhooks/secret")
    def webhook_secret(self) -> WebhookSecret:
        """The server's own secret, which signs messages to a plain `webhook_url`; needs the scope admin."""

    @calls("POST", "/api/webhooks/secret/rotate")
    def rotate_webhook_secret(self, *, secret: str | None = None) -> WebhookSecret:
        """Makes a new secret for the server. For a day messages are signed with the old one too."""

    @calls("GET", "/api/deliveries")
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

    @calls("GET", "/api/deliveries/{delivery_id}")
    def get_delivery(self, delivery_id: str) -> Delivery:
        """Reads one webhook message and its attempts."""

    @calls("POST", "/api/deliveries/{delivery_id}/redeliver")
    def redeliver(self, delivery_id: str) -> Delivery:
        """Sends a webhook message once more, with the same id."""

    # --- the state of the whole ---------------------------------------------------------------------------

    @calls("GET", "/api/stats")
    def stats(self) -> Stats:
        """Counts jobs, runs, resources and workers."""

    @calls("GET", "/api/attention")
    def list_attention(self) -> Items[AttentionItem]:
        """Lists what a person should look at, with since when and what to do."""

    @calls("POST", "/api/attention/seen", is_repeatable=True)
    def mark_attention_seen(self, name: str | None = None) -> Items[AttentionItem]:
        """Marks operational events as seen, of one name or all; answers what is left."""

    @calls("GET", "/api/limits")
    def list_limits(self) -> Items[Limit]:
        """Lists the limits in force, with the slots in use and the jobs that wait."""

    @calls("PUT", "/api/limits/{name}", body="changes", is_repeatable=True)
    def set_limit(self, name: str, changes: Mapping[str, Any]) -> Limit:
        """Sets fields of a limit, or makes a new one; all workers obey at once."""

    @calls("DELETE", "/api/limits/{name}")
    def reset_limit(self, name: str) -> Items[Limit]:
        """Takes back what was set: what settings declare holds again; without such, no item is left."""

    @calls("GET", "/api/keys")
    def list_keys(self) -> Items[ApiKey]:
        """Lists all API keys by their first characters, revoked ones included; needs the scope admin."""

    @calls("POST", "/api/keys")
    def create_key(self, name: str, *, scope: str = "write", expires_s: float | None = None) -> NewApiKey:
        """Creates an API key and answers it, this once; needs the scope admin, or a server without keys."""

    @calls("DELETE", "/api/keys/{key_id}")
    def revoke_key(self, key_id: str) -> ApiKey:
        """Revokes an API key at once; needs the scope admin."""

    @calls("GET", "/api/workers")
    def workers(self, *, all: bool | None = None, limit: int | None = 500, cursor: str | None = None) -> Page[Worker]:
        """Lists workers that are alive; with `all` also those that have stopped."""

    @calls("GET", "/api/job-types")
    def job_types(self, *, limit: int | None = 500, cursor: str | None = None) -> Page[JobType]:
        """Lists the job types that workers have announced, with the JSON schemas of their params."""

    @calls("GET", "/api/events")
    def list_events(
        self,
        *,
        after: str | None = None,
        name: Sequence[str] | None = None,
        job_id: str | None = None,
        limit: int | None = None,
    ) -> Page[Event]:
        """Lists events, the oldest first; `after` is a `next_cursor` or the id of an event."""

    @calls("GET", "/api/events/search")
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

    @calls("GET", "/healthz")
    def health(self) -> JsonObject:
        """Asks whether the server's process answers; needs no key."""

    @calls("GET", "/readyz", is_repeatable=False)
    def readiness(self) -> JsonObject:
        """Checks that the server can do its work; raises ProblemError with the status 503 if it cannot."""


def direct_body(params: Mapping[str, Any] | None, wait_s: float | None, preempt: bool) -> dict[str, Any]:
    """The body of a direct request."""
    return sent(params=dict(params or {}), wait_s=wait_s, preempt=preempt or None)
