"""The composition root: the only module that knows every concrete class.

The command line and the API are handed what they need from here; neither reaches for it.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdbeat.domain.errors import HoldbeatError, SettingsError, StoreRefused

if TYPE_CHECKING:
    import asyncio

    from holdbeat.app import App
    from holdbeat.engine.service import Service
    from holdbeat.engine.supervisor import Supervisor
    from holdbeat.observe.metrics import Metrics
    from holdbeat.observe.metrics_server import MetricsServer
    from holdbeat.observe.recorder import Recorder
    from holdbeat.settings import Settings
    from holdbeat.store.adapter import PersistenceAdapter

log = logging.getLogger("holdbeat")

EXIT_STORE_REFUSED = 3
LAST_WAIT_S = 1.0
LEFT_THREADS_S = 5.0
"""How long the end of a process waits for threads that handlers have left behind, and for its own exit functions."""


class Composition:
    """Builds things for the command line, each from modules that are loaded only then: `--help` needs none."""

    def settings(self, flags: Mapping[str, Any]) -> Settings:
        from holdbeat.settings import Settings

        return Settings.load(flags)

    def open_store(self, settings: Settings, *, create: bool = False) -> PersistenceAdapter:
        """The store by itself, for commands that read and change it directly.

        They go by the terms of the workers there, whatever their own settings say; a new store knows the job types
        that every App has.
        """
        from holdbeat.domain.ids import IdSource
        from holdbeat.store.opening import open_store
        from holdbeat.store.running.shared_terms import terms_in_force
        from holdbeat.store.transaction import StoreTerms

        terms = StoreTerms(IdSource(), settings.declared_limits, settings.aging_s, settings.direct_burst)
        store = open_store(settings.store, terms, create=create)
        try:
            store.terms = store.read_sync(terms_in_force)
            if create:
                _announce_built_in(store, settings)
        except BaseException:
            store.close()
            raise
        return store

    def load_app(self, path: str | None, flags: Mapping[str, Any]) -> App:
        """The App that `module:name` names, with the flags over its own settings; without a path an empty one."""
        from holdbeat.app import App
        from holdbeat.settings import Settings

        chosen = {name: value for name, value in flags.items() if value is not None}
        settings = Settings.load(chosen)
        if path is None:
            return App(settings=settings)
        if "store" in chosen:
            # For what opens the store by itself: the module while it is imported, the processes of isolated handlers.
            os.environ["HOLDBEAT_STORE"] = settings.store
        app = _import_app(path)
        if chosen:
            app.take_flags(chosen)
        return app

    def serve(
        self,
        app: App,
        *,
        has_worker: bool = True,
        has_api: bool = True,
        kind: str = "serve",
        resources: Sequence[str] | None = None,
    ) -> int:
        """Runs a process until it is told to stop; returns its exit code."""
        from holdbeat.engine.forked_signals import default_signals_in_forks
        from holdbeat.interpreter import tune

        tune()
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            with default_signals_in_forks():
                code = _run(_serve(app, has_worker=has_worker, has_api=has_api, kind=kind, resources=resources))
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        threading.Thread(target=_end, args=(code,), name="holdbeat-end", daemon=True).start()
        return code

    def supervise(self, commands: Sequence[Sequence[str]]) -> int:
        """Runs worker processes by these commands until a signal ends them; returns the exit code."""
        from holdbeat.domain.clock import SystemClock
        from holdbeat.engine.worker_processes import WorkerProcesses

        return WorkerProcesses(commands, SystemClock()).run()


def _announce_built_in(store: PersistenceAdapter, settings: Settings) -> None:
    """Lets a new store know what every worker can run, so that its jobs can be submitted before one has started."""
    from holdbeat.app import App
    from holdbeat.engine.supervisor import announcement
    from holdbeat.store.maintenance.inspection import is_untouched
    from holdbeat.store.queue.job_types import announce

    if store.read_sync(is_untouched):
        store.write_sync(announce, [announcement(job_type) for job_type in App(settings=settings).job_types])


def _run(main: Coroutine[Any, Any, int]) -> int:
    """Runs `main` to its end, and does not wait for a handler that will not end: its run has been settled by then."""
    import asyncio

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    task = loop.create_task(main)
    try:
        while True:
            try:
                return loop.run_until_complete(task)
            except (SystemExit, KeyboardInterrupt, RuntimeError) as error:
                is_interrupted = signal.getsignal(signal.SIGINT) is signal.default_int_handler
                if task.done() or is_interrupted:
                    raise
                # loop.stop(), or sys.exit() in a callback or in a task that the handler left behind.
                log.error("the event loop was ended by a handler's code (%r); it goes on", error)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            _, left = loop.run_until_complete(asyncio.wait(left, timeout=LAST_WAIT_S))
        if left:
            loop.set_exception_handler(lambda *_: None)
        else:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()


def _end(code: int) -> None:
    """Ends the process although threads go on, such as a handler's in `asyncio.to_thread`: the interpreter would wait.

    Run in a daemon thread, which ends with the interpreter if that does not wait.
    """
    from holdbeat.observe.log_writer import flush_logs
    from holdbeat.observe.process_output import settle_output

    threading.Event().wait(LEFT_THREADS_S)
    main = threading.main_thread()
    left = [thread.name for thread in threading.enumerate() if not thread.daemon and thread is not main]
    log.warning("the process ends although these threads go on: %s", ", ".join(left) or "one in an exit function")
    settle_output()
    flush_logs()
    os._exit(code)


def _import_app(path: str) -> App:
    from holdbeat.app import App

    module_name, _, attribute = path.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.partition(".")[0] and error.name != module_name:
            raise _not_imported(module_name, error) from error
        stem = module_name.removesuffix(".py")
        example = "example:app for example.py" if stem == module_name else f"{stem}:{attribute or 'app'}"
        raise SettingsError(
            f"There is no module {module_name!r} here. Write module:app, e.g. {example}, and start from the folder "
            "that holds it.",
            field="app",
        ) from error
    except HoldbeatError:
        raise
    except Exception as error:
        raise _not_imported(module_name, error) from error
    name = attribute or "app"
    app = getattr(module, name, None)
    if isinstance(app, App):
        return app
    others = [other for other, value in vars(module).items() if isinstance(value, App)]
    advice = (
        f"It has {', '.join(others)}: write {module_name}:{others[0]}." if others else "Make one there: app = App()."
    )
    raise SettingsError(f"{module_name} has no App named {name!r}. {advice}", field="app")


def _not_imported(module_name: str, error: Exception) -> SettingsError:
    """Prints where the module raised, from its own first line on, and says so in a sentence."""
    import traceback

    trace = error.__traceback__
    while trace is not None and _is_of_import(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    traceback.print_exception(error.with_traceback(trace))
    return SettingsError(
        f"The module {module_name!r} raised {type(error).__name__} when it was imported: {error}. Correct it, or "
        "install what it needs.",
        field="app",
    )


def _is_of_import(file: str) -> bool:
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib.")


async def _serve(app: App, *, has_worker: bool, has_api: bool, kind: str, resources: Sequence[str] | None) -> int:
    import asyncio

    from holdbeat.engine.shutdown_watch import ShutdownWatch
    from holdbeat.engine.supervisor import EXIT_RESULTS_NOT_STORED
    from holdbeat.store.migrate import NEWER_SCHEMA

    store = await asyncio.to_thread(lambda: app.store)
    metrics = _metrics(store) if has_api or app.settings.metrics_port is not None else None
    metrics_server = None if has_api else _metrics_server(app.settings, metrics)
    supervisor = _supervisor(app, store, metrics, has_worker=has_worker, kind=kind, resources=resources)
    api = _Api(supervisor, metrics) if has_api and metrics is not None else None
    if api is not None:
        await api.loop.run(api.server.check_access())
    ends = asyncio.Event()
    code = 0
    grace_s: float | None = None

    def on_refused(error: StoreRefused) -> None:
        nonlocal code, grace_s
        code = EXIT_STORE_REFUSED
        log.critical("%s", error)
        ends.set()
        # A store that was upgraded still takes what running handlers have to say; other refused stores do not.
        if error.code != NEWER_SCHEMA:
            grace_s = 0.0
            supervisor.end_grace()

    def on_signal() -> None:
        if ends.is_set():
            supervisor.end_grace()
        ends.set()

    supervisor.on_refused = on_refused
    watch = ShutdownWatch(supervisor, on_signal)
    watch.handle_signals()
    try:
        is_started = await _started(supervisor, ends)
    except BaseException:
        await supervisor.stop(0.0)
        watch.close()
        app.close()
        raise
    if api is not None and is_started:
        await api.start()
    if metrics_server is not None and is_started:
        metrics_server.start()
    await ends.wait()
    log.info("shutting down; a second signal ends the grace")
    if api is not None:
        api.loop.call(api.server.begin_to_stop)
    await supervisor.stop(grace_s)
    if api is not None:
        await api.stop()
    if metrics_server is not None:
        metrics_server.close()
    watch.close()
    app.close()
    return code or (EXIT_RESULTS_NOT_STORED if supervisor.owes_results else 0)


async def _started(supervisor: Supervisor, ends: asyncio.Event) -> bool:
    """Starts it; False if it is told to end and cannot start within the grace: the store or a hook does not answer."""
    import asyncio

    starting, ending = asyncio.ensure_future(supervisor.start()), asyncio.ensure_future(ends.wait())
    try:
        await asyncio.wait({starting, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not await supervisor.within_grace(starting, supervisor.settings.shutdown_grace_s):
            log.warning("told to end before it had started")
            starting.cancel()
            await asyncio.wait({starting}, timeout=LAST_WAIT_S)
            return False
        starting.result()
        return True
    finally:
        ending.cancel()


def _supervisor(
    app: App,
    store: PersistenceAdapter,
    metrics: Metrics | None,
    *,
    has_worker: bool,
    kind: str,
    resources: Sequence[str] | None,
) -> Supervisor:
    from holdbeat.engine.supervisor import Supervisor
    from holdbeat.observe.recorder import SILENT

    recorder = metrics or SILENT
    services = _services(store, app.settings, recorder) if kind == "serve" else []
    if has_worker:
        services += app.hook_services(store)
    app._supervisor = Supervisor(
        store,
        app.settings,
        app.job_types,
        kind=kind,
        resources=resources,
        has_worker=has_worker,
        more_services=services,
        recorder=recorder,
    )
    return app._supervisor


def _metrics(store: PersistenceAdapter) -> Metrics:
    """Makes the metrics; imported only here: an embedding program need not load what renders them."""
    from holdbeat.observe.metrics import Metrics

    return Metrics(store)


def _metrics_server(settings: Settings, metrics: Metrics | None) -> MetricsServer | None:
    """The port for /metrics of a process without an API, if the settings ask for one."""
    if metrics is None or settings.metrics_port is None:
        return None
    from holdbeat.observe.metrics_server import MetricsServer

    return MetricsServer(settings.metrics_host, settings.metrics_port, metrics.exposition)


def _services(store: PersistenceAdapter, settings: Settings, recorder: Recorder) -> list[Service]:
    """The services of `serve` besides those of every process."""
    from holdbeat.engine.schedule_trigger import ScheduleTrigger
    from holdbeat.engine.webhook_service import WebhookService

    return [
        ScheduleTrigger.for_settings(store, settings, recorder=recorder),
        WebhookService.for_settings(store, settings, recorder=recorder),
    ]


class _Api:
    """The API and the dashboard, in an event loop of their own."""

    def __init__(self, supervisor: Supervisor, metrics: Metrics) -> None:
        from holdbeat.api.server import ApiServer, LoopThread
        from holdbeat.web.pages import install

        self.loop = LoopThread("holdbeat-api")
        self.server = ApiServer(
            supervisor,
            add_dashboard=install,
            metrics=metrics.exposition,
            count_legacy_call=metrics.legacy_called,
        )

    async def start(self) -> None:
        await self.loop.run(self.server.start())
        log.info("serving on %s", self.server.address)

    async def stop(self) -> None:
        await self.loop.run(self.server.stop())
        self.loop.close()


def main() -> None:
    """The `holdbeat` command."""
    from holdbeat.cli.main import cli

    _open_missing_streams()
    cli(obj=Composition())


def _open_missing_streams() -> None:
    """Whoever closed a standard stream (`>&-`) gets or sends nothing by it, and no file of ours takes its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
