"""The handler of `shell` jobs: a command, given as a list of arguments.

Guards SEC-05 at run time: it runs nothing unless the operator turned it on, and no text is ever handed to a
shell unless the job says `shell: true`. The worker's own settings, store password included, are kept out of
the command's environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from holdbeat.domain.errors import HoldbeatError
from holdbeat.domain.job import SHELL
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.domain.schema import Schema, validate
from holdbeat.handlers.context import Context
from holdbeat.handlers.handler import run_process, stopped_before_start
from holdbeat.handlers.job_type import JobType
from holdbeat.handlers.output import LogPipe, Output
from holdbeat.handlers.process import memory_file, opened, write_output
from holdbeat.handlers.process_group import ProcessGroup, describe_exit, despite_left_behind, note_left_behind
from holdbeat.handlers.stop import StopSignal

SHELL_SCHEMA: Schema = {
    "type": "object",
    "properties": {
        "argv": {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                {"type": "string", "minLength": 1},
            ],
            "description": "The command and its arguments; a string only together with shell: true.",
        },
        "cwd": {"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}]},
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
        "stdin": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "shell": {"type": "boolean"},
    },
    "required": ["argv"],
    "additionalProperties": False,
    # One or the other form of argv, as `shell` says.
    "anyOf": [
        {"properties": {"shell": {"const": True}, "argv": {"type": "string"}}, "required": ["shell"]},
        {"properties": {"shell": {"const": False}, "argv": {"type": "array"}}},
    ],
}
_HERE = Path(__file__).resolve().parent
_LAUNCH = (sys.executable, "-I", "-S", str(_HERE / "shell_child.py"), str(_HERE))


def shell_job_type() -> JobType:
    """The built-in type `shell`. An App has it only if its operator set `allow_shell`."""
    return JobType(
        name=SHELL,
        function=None,
        schema=SHELL_SCHEMA,
        description="Runs a command on the worker's machine.",
        handler=ShellHandler(),
    )


class ShellHandler:
    async def run(self, ctx: Context, params: Mapping[str, Any], stop: StopSignal) -> Outcome:
        early = stopped_before_start(stop)
        if early is not None:
            return early
        try:
            validate(SHELL_SCHEMA, dict(params))
        except HoldbeatError as error:
            return Outcome.failed(ErrorKind.REJECTED, str(error))
        return await run_process(stop, self._run(ctx, params, stop))

    async def _run(self, ctx: Context, params: Mapping[str, Any], stop: StopSignal) -> Outcome:
        command = ["/bin/sh", "-c", params["argv"]] if params.get("shell") else params["argv"]
        with contextlib.ExitStack() as cleanup:
            stdout, stderr = (
                LogPipe(partial(write_output, ctx, stream), lambda: ctx.is_log_full) for stream in ("stdout", "stderr")
            )
            refusal = bytearray()
            outputs = [opened(cleanup, Output(take)) for take in (stdout.feed, stderr.feed, refusal.extend)]
            stdin: int | None = None
            if params.get("stdin"):
                stdin = memory_file(params["stdin"].encode())
                cleanup.callback(os.close, stdin)
            error_fd = outputs[2].write_fd
            group = await ProcessGroup.start(
                [*_LAUNCH, str(os.getpid()), str(error_fd), params.get("cwd") or "", *command],
                run_id=ctx.run_id,
                stdout=outputs[0],
                stderr=outputs[1],
                env={**_environment(ctx), **params.get("env", {})},
                stdin=stdin,
                pass_fds=(error_fd,),
            )
            outputs[2].begin()
            code = await group.wait(stop, tell_group=True)
            await outputs[2].end(1.0)
            for log in (stdout, stderr):
                log.finish()
            ctx.write_log("stderr", note_left_behind(group.left_behind))
        if refusal:
            return Outcome.failed(ErrorKind.ERROR, json.loads(refusal), exit_code=code)
        result = {"exit_code": code, "stdout_tail": stdout.tail, "stderr_tail": stderr.tail}
        if code == 0:
            return despite_left_behind(Outcome.completed(result, exit_code=0), group.left_behind)
        last_words = stderr.tail.strip().rpartition("\n")[2][:500]
        exit_words = describe_exit(code, was_killed=group.was_killed)
        text = f"The command ended with {exit_words}{': ' + last_words if last_words else '.'}"
        return Outcome.failed(ErrorKind.EXIT, text, exit_code=code, result=result)


_WITHHELD = ("HOLDBEAT_", "PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSSLKEY", "PGSSLPASSWORD")
"""Variables that open the store: a command does not get them."""


def _environment(ctx: Context) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(_WITHHELD)}
    env["HOLDBEAT_FENCE"] = str(ctx.fence)
    if ctx.slot is not None:
        env["HOLDBEAT_SLOT"] = str(ctx.slot)
        env["HOLDBEAT_SLOTS"] = ",".join(map(str, ctx.slots))
    env["HOLDBEAT_ATTEMPT"] = str(ctx.attempt)
    if ctx.job is not None:
        env["HOLDBEAT_JOB_ID"] = ctx.job.id
    return env
