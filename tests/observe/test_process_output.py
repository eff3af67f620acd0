"""What is written to a process's descriptors becomes records that a pipe takes in one piece, whatever was written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdbeat.observe.log_file import PIPE_BUF, LogFile
from holdbeat.observe.output_child import LINE_LIMIT, LinePipe

pytestmark = pytest.mark.rule("LOG-01")


class Ends:
    """A LinePipe, the end that is written to, and the log file that it writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._reader, self._writer = os.pipe()
        self.pipe = LinePipe(self._reader, "stderr", LogFile(self._log))

    def write(self, data: bytes) -> None:
        for begin in range(0, len(data), 32_768):
            os.write(self._writer, data[begin : begin + 32_768])
            self.pipe.read()

    def messages(self) -> list[str]:
        lines = self._path.read_bytes().splitlines()
        assert all(len(line) < PIPE_BUF for line in lines)
        return [json.loads(line)["message"] for line in lines]

    def close(self) -> None:
        for descriptor in (self._log, self._reader, self._writer):
            os.close(descriptor)


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    made = Ends(tmp_path / "log")
    yield made
    made.close()


def test_each_line_is_a_record_and_half_a_line_is_written_at_the_end(ends: Ends) -> None:
    ends.write(b"one\r\n\ntw")
    ends.write(b"o\nhalf")
    assert ends.messages() == ["one", "", "two"]
    ends.pipe.read_all()
    assert ends.messages() == ["one", "", "two", "half"]


@pytest.mark.parametrize("character", ["a", "\u00e4", "\U0001f600", "\x01"])
def test_a_line_without_end_becomes_records_that_a_pipe_takes_in_one_piece(ends: Ends, character: str) -> None:
    text = character * (3 * LINE_LIMIT)
    ends.write(text.encode())
    ends.pipe.read_all()
    assert "".join(ends.messages()) == text


def test_bytes_that_are_no_utf_8_are_replaced_and_a_cut_character_is_not(ends: Ends) -> None:
    ends.write(b"\xff\xc3")
    ends.write(b"\xa4\n")
    assert ends.messages() == ["\ufffd\u00e4"]


def test_secrets_in_output_are_not_written(ends: Ends) -> None:
    ends.write(b"Authorization: Bearer abcdefgh12345678\n")
    assert "abcdefgh12345678" not in ends.messages()[0]


def test_lines_are_joined_up_to_what_a_pipe_takes_in_one_piece() -> None:
    reader, writer = os.pipe()
    lines = [f"{number} {'x' * 100}\n" for number in range(100)]
    LogFile(writer).write("".join(lines))
    os.close(writer)
    with open(reader, "rb") as file:
        assert file.read() == "".join(lines).encode()


def test_the_streams_are_put_back_where_the_log_turns_out_to_be_text() -> None:
    code = (
        "import os; from holdbeat.observe.logs import configure_process\n"
        "configure_process('info', 'json'); print('in json', flush=True)\n"
        "configure_process('info', 'text'); print('as it is')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "as it is\n"
    assert [json.loads(line)["message"] for line in done.stderr.splitlines()] == ["in json"]


def test_what_is_written_just_before_the_end_is_in_the_log_at_the_end(tmp_path: Path) -> None:
    code = (
        "import os; from holdbeat.observe.logs import configure_process\n"
        "configure_process('info', 'json'); os.write(1, b'last words'); 1 / 0\n"
    )
    with (tmp_path / "log").open("wb") as log:
        done = subprocess.run([sys.executable, "-c", code], stdout=log, stderr=log, timeout=60, check=False)
    messages = [json.loads(line)["message"] for line in (tmp_path / "log").read_text().splitlines()]
    assert done.returncode == 1
    assert "last words" in messages and "ZeroDivisionError: division by zero" in messages
