"""Files of artifacts: only their owner can reach them, and one that was changed is not handed out (EXE-03)."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdbeat.cli.local import LocalBackend
from holdbeat.domain.errors import ArtifactChanged
from tests.api.conftest import Serve
from tests.api.serving import problem_of


@pytest.mark.rule("EXE-03")
def test_an_artifact_whose_file_was_changed_is_never_handed_out(serve: Serve, tmp_path: Path) -> None:
    served = serve(artifact_dir=str(tmp_path / "artifacts"))
    run = served.run_job("draw")["run"]["id"]
    address = f"/api/job-runs/{run}/artifacts/picture.bin"
    assert served.client.get(address).content == b"\x00\x01picture"
    (file,) = (tmp_path / "artifacts").glob("*/picture.bin.*")
    file.write_bytes(b"\x00\x01forgery")
    refused = problem_of(served.client.get(address), 500)
    assert refused["code"] == "artifact_changed"
    assert "forgery" not in str(refused)
    with pytest.raises(ArtifactChanged):
        LocalBackend(served.store, served.settings).get_artifact(run, "picture.bin")
