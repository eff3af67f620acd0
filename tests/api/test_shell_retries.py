"""Who may not make a shell job may not run it once more either."""

from __future__ import annotations

import pytest

from holdbeat.domain.api_key import Scope
from tests.api.conftest import Serve
from tests.api.serving import problem_of, unique
from tests.waiting import eventually


@pytest.mark.rule("SEC-05")
def test_a_write_key_retries_shell_jobs_of_templates_alone(serve: Serve) -> None:
    server = serve(is_key_needed=True, allow_shell=True)
    writer = server.add_key(Scope.WRITE)
    with server.new_client(server.admin_key) as admin, server.new_client(writer) as write:
        name = unique("failing")
        body = {"name": name, "type": "shell", "default_params": {"argv": ["false"]}}
        assert admin.post("/api/job-templates", json=body).status_code == 201
        own = admin.post("/api/jobs", json={"type": "shell", "params": {"argv": ["false"]}}).json()["id"]
        of_template = admin.post("/api/jobs", json={"template": name}).json()["id"]
        ids = [own, of_template]

        def runs() -> list[str]:
            jobs = [admin.get(f"/api/jobs/{job_id}").json() for job_id in ids]
            return [job["run"]["id"] for job in jobs if job["status"] == "FAILED" and job["run"]["status"]]

        run_ids = eventually(lambda: result if len(result := runs()) == 2 else None)
        problem_of(write.post(f"/api/jobs/{own}/retry"), 403, "needs_admin")
        problem_of(write.post(f"/api/job-runs/{run_ids[0]}/retry"), 403, "needs_admin")
        matched = write.post("/api/job-runs/retry", json={"filter": {"ids": ids}, "dry_run": True}).json()
        assert matched["ids"] == [of_template]
        assert write.post(f"/api/jobs/{of_template}/retry").status_code == 201
        assert admin.post(f"/api/jobs/{own}/retry").status_code == 201
