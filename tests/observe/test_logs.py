"""Log lines hold whatever a record contains: one line, no commands to the terminal, no secrets, only our logger."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdbeat.domain.errors import SettingsError
from holdbeat.domain.log_text import one_line
from holdbeat.domain.redaction import SECRET_HEADERS, without_secrets
from holdbeat.observe.log_formats import JsonFormatter, TextFormatter
from holdbeat.observe.logs import configure

NASTY = 'name\n{"level":"critical"}\r\x1b[2J\x00\x7f\x85\u2028\u202e\ud800%s{}\\n'


@pytest.fixture
def undone() -> Iterator[None]:
    """Leaves the loggers as they were."""
    ours = logging.getLogger("holdbeat")
    before = (list(ours.handlers), ours.level, ours.propagate)
    yield
    ours.handlers, ours.level, ours.propagate = before[0], before[1], before[2]
    ours.setLevel(before[1])


def record(message: str, *args: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("holdbeat.engine", logging.INFO, __file__, 1, message, args, None)
    made.__dict__.update(fields)
    return made


@pytest.mark.rule("OPS-04")
@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_no_text_from_outside_leaves_its_line(formatter: logging.Formatter) -> None:
    for made in (record(NASTY), record("job type %s", NASTY), record("x", job=NASTY, data={NASTY: [NASTY]})):
        line = formatter.format(made)
        assert len(line.splitlines()) == 1
        assert line.isprintable()


@pytest.mark.rule("OPS-04")
def test_a_json_line_gives_back_what_was_logged() -> None:
    line = json.loads(JsonFormatter().format(record("run of %s", "a\nb", job="j", run="r", worker="w", fence=7)))
    assert line["message"] == "run of a\nb"
    assert (line["job"], line["run"], line["worker"], line["fence"]) == ("j", "r", "w", 7)
    assert (line["level"], line["logger"]) == ("info", "holdbeat.engine")
    assert line["at"].endswith("Z") and len(line["at"]) == 24


@pytest.mark.rule("OPS-04")
def test_an_exception_is_a_field_of_the_one_line() -> None:
    try:
        raise ValueError("two\nlines \x1b[31m")
    except ValueError:
        made = logging.LogRecord("holdbeat", logging.ERROR, __file__, 1, "it broke", (), sys.exc_info())
    text = JsonFormatter().format(made)
    assert len(text.splitlines()) == 1
    assert "ValueError: two\nlines" in json.loads(text)["exception"]
    lines = TextFormatter().format(made).splitlines()
    assert len(lines) > 2 and all(line.startswith("    ") and line.isprintable() for line in lines[1:])


def test_arguments_that_do_not_fit_cost_no_line() -> None:
    class Broken:
        def __repr__(self) -> str:
            return "broken"

        def __str__(self) -> str:
            raise RuntimeError("no")

    assert "%d" in json.loads(JsonFormatter().format(record("%d things", "many")))["message"]
    assert "broken" in json.loads(JsonFormatter().format(record("%s", Broken())))["message"]
    assert json.loads(JsonFormatter().format(record("x", data={"odd": {1, 2}})))["data"] == {"odd": "{1, 2}"}


def test_a_backslash_cannot_pretend_to_be_an_escape() -> None:
    assert one_line("a\\nb") == "a\\\\nb"
    assert one_line("a\nb") == "a\\nb"
    assert one_line("tag\U000e0041") == "tag\\U000e0041"
    assert one_line("plain text, größer") == "plain text, größer"


SECRETS = [
    "Authorization: Bearer topsecretvalue",
    "headers={'Authorization': 'Basic dG9wc2VjcmV0dmFsdWU=', 'accept': '*/*'}",
    '{"cookie": "session=topsecretvalue; other=1"}',
    "x-api-key=topsecretvalue",
    "cannot reach postgresql://holdbeat:topsecretvalue@db.example.org:5432/jobs",
    "host=db password=topsecretvalue dbname=jobs",
    "https://example.org/hook?access_token=topsecretvalue&x=1",
    "key hb_abcdefTOPSECRETVALUE0123456789 refused",
    "signed with whsec_topsecretvalue0123456789",
]


@pytest.mark.rule("SEC-07")
@pytest.mark.parametrize("text", SECRETS)
def test_what_looks_like_a_secret_is_never_written(text: str) -> None:
    for made in (record("%s", text), record("x", data={"why": [text]})):
        for formatter in (JsonFormatter(), TextFormatter()):
            line = formatter.format(made).lower()
            assert "topsecret" not in line and "dg9wc2" not in line
            assert "[redacted]" in line


@pytest.mark.rule("SEC-07")
@pytest.mark.parametrize("name", sorted(SECRET_HEADERS))
def test_every_header_that_is_secret_in_answers_is_secret_in_logs(name: str) -> None:
    for text in (
        f"{name}: topsecretvalue",
        f"{{'{name.title()}': 'topsecretvalue'}}",
        f"{name.upper()}=topsecretvalue",
    ):
        assert "topsecret" not in without_secrets(text).lower()


@pytest.mark.rule("SEC-07")
def test_ordinary_words_are_left_alone() -> None:
    for text in (
        "the basic idea bears fruit",
        "sqlite:///var/lib/holdbeat.db",
        "postgresql://holdbeat@db.example.org/jobs",
        "serving on http://127.0.0.1:7450",
        "job.claimed job=0198 fence=7",
    ):
        assert without_secrets(text) == text


@pytest.mark.rule("OPS-04")
def test_only_our_own_logger_is_touched(undone: None) -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    stream = io.StringIO()
    configure("info", "json", stream)
    handler = configure("debug", "json", stream)
    logging.getLogger("holdbeat.engine").debug("hello", extra={"worker": "w"})
    logging.getLogger("somebody.else").error("not ours")
    handler.flush()
    assert (list(root.handlers), root.level) == before
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["message"], line["worker"]) for line in lines] == [("hello", "w")]


def test_an_unknown_level_or_format_is_refused(undone: None) -> None:
    with pytest.raises(SettingsError, match="log_level"):
        configure("loud")
    with pytest.raises(SettingsError, match="log_format"):
        configure("info", "xml")


@pytest.mark.rule("OPS-05")
def test_embedding_programs_load_neither_metrics_nor_traces_nor_an_http_client() -> None:
    code = (
        "import sys, holdbeat.app, holdbeat.engine.supervisor, holdbeat.observe.tracing, holdbeat.observe.explain\n"
        "unneeded = ('prometheus_client', 'opentelemetry', 'httpx2', 'httpcore2')\n"
        "loaded = [name for name in sys.modules if name.split('.')[0] in unneeded]\n"
        "sys.exit(', '.join(loaded) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
