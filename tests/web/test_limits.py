"""The page of the limits: what holds, who uses it, and how it is changed."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.api.serving import Served, open_gate, unique
from tests.waiting import eventually
from tests.web.conftest import Complaints, keep

pytestmark = pytest.mark.rule("LIM-01", "LIM-02")


def limit_of(served: Served, name: str) -> dict[str, object]:
    items = served.client.get("/api/limits").json()["items"]
    return next(limit for limit in items if limit["name"] == name)


def test_the_page_shows_who_uses_a_limit_and_a_change_holds_at_once(served: Served, page: Page) -> None:
    served.client.put("/api/limits/studio", json={"resource": "studio", "slots": 1}).raise_for_status()
    gates = [unique("gate") for _ in range(2)]
    first, second = (served.submit("hold", {"gate": gate}, resource="studio") for gate in gates)
    served.wait_for(first["id"], "RUNNING")
    page.goto(f"{served.url}/ui/limits")
    row = page.locator("#limit-studio")
    expect(row).to_contain_text("1 of 1")
    expect(row.get_by_role("link", name="1", exact=True)).to_be_visible()
    row.get_by_role("button", name="Change studio…").click()
    expect(page.locator("#limit-dialog").get_by_label("Slots")).to_have_value("1")
    page.locator("#limit-dialog").get_by_label("Slots").fill("2")
    page.locator("#limit-dialog").get_by_label("Starts").fill("60")
    page.locator("#limit-dialog").get_by_label("in seconds").fill("60")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(row).to_contain_text("of 2")
    expect(row).to_contain_text("60 in 60 s")
    served.wait_for(second["id"], "RUNNING")
    assert limit_of(served, "studio")["rate"] == {"count": 60, "per_s": 60, "burst": 0}
    for gate in gates:
        open_gate(gate)
    row.get_by_role("button", name="Remove").click()
    eventually(lambda: "studio" not in [item["name"] for item in served.client.get("/api/limits").json()["items"]])


def test_the_queue_names_the_limit_that_each_job_waits_for(served: Served, page: Page) -> None:
    served.client.put("/api/limits/shut", json={"resource": "shut", "slots": 0}).raise_for_status()
    served.client.put(
        "/api/limits/slow", json={"resource": "slow", "slots": 5, "rate": {"count": 1, "per_s": 3600}}
    ).raise_for_status()
    full = served.submit("anything", {}, resource="shut")
    served.run_job("echo", {}, resource="slow")
    rated = served.submit("echo", {}, resource="slow")
    page.goto(f"{served.url}/ui/queue")
    expect(page.locator(f"#q-{full['id']}")).to_contain_text("all slots are in use (limit shut)")
    expect(page.locator(f"#q-{rated['id']}")).to_contain_text("its rate permits no start yet (limit slow)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_in_both_themes_and_on_a_phone(
    served: Served, browser: Browser, complaints: Complaints, scheme: str, width: int
) -> None:
    fill = {
        "gpu": {"resource": "gpu", "slots": 2},
        "openai": {"resource": "openai", "slots": 8, "rate": {"count": 60, "per_s": 60, "burst": 5}},
        "per-customer": {"type": "export", "slots": 1, "per_partition": True, "fair": True, "weights": {"acme": 3}},
    }
    for name, limit in fill.items():
        served.client.put(f"/api/limits/{name}", json=limit).raise_for_status()
    gate = unique("gate")
    job = served.submit("hold", {"gate": gate}, resource="gpu", partition="acme")
    served.wait_for(job["id"], "RUNNING")
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    complaints.listen_to(page)
    page.goto(f"{served.url}/ui/limits")
    expect(page.locator("#limit-gpu")).to_contain_text("1 of 2")
    keep(page, f"limits-{scheme}-{width}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is cut off at the side"
    page.get_by_role("button", name="Change openai…").click()
    keep(page, f"limits-dialog-{scheme}-{width}")
    context.close()
    open_gate(gate)
    assert complaints == []
