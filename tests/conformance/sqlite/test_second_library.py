"""STO-01: a second SQLite library, or any other open file, on a store's file in one process is refused.

Each test runs programs of their own: the damage that the rule prevents is done to a whole process.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from holdbeat.store.sqlite.damage_record import recorded_damage
from tests.cli.command import Command

PREAMBLE = """
import os, shutil, sqlite3, subprocess, sys, threading, time
from pathlib import Path
import apsw
from holdbeat import App
from holdbeat.domain.errors import Conflict, StoreRefused
from holdbeat.store.sqlite.second_library import SecondLibraryWatch

app = App("sqlite:///holdbeat.db")

@app.job
def add(a: int) -> int:
    return a

def refusal(deed):
    try:
        deed()
    except (Conflict, StoreRefused) as error:
        return type(error).__name__, error.code
    return "nothing", "was refused"

def poll_at_every_call():
    SecondLibraryWatch.poll_every_s = SecondLibraryWatch.poll_pause_ratio = 0
    app.store._file._watch._poll_at = 0

def stored(program=sys.executable):
    count = "import sqlite3; print(sqlite3.connect('holdbeat.db').execute('SELECT count(*) FROM jobs').fetchone()[0])"
    return int(subprocess.run([program, "-c", count], capture_output=True, check=True).stdout)
"""

SECOND_LIBRARY = ("Conflict", "second_sqlite_library")
STORE_REFUSED = ("StoreRefused", "second_sqlite_library")


def run(folder: Path, program: str) -> None:
    """Runs a program in a process of its own; its assertions must hold."""
    text = f"{PREAMBLE}\n{SECOND_LIBRARY=}\n{STORE_REFUSED=}\n{textwrap.dedent(program)}".replace("\t", "    ")
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", text], cwd=folder, capture_output=True, text=True, timeout=100
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.rule("STO-01")
def test_transactions_of_sqlite3_beside_a_store_cannot_lose_an_acknowledged_job(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        app.store
        refused = 0
        for number in range(20):
            try:
                own = sqlite3.connect("holdbeat.db", isolation_level=None)
            except Conflict as error:
                assert "app.connection()" in error.detail
                refused += 1
                own = None
            if own: own.execute("BEGIN")
            app.enqueue_sync(add, a=number)
            if own: own.execute("COMMIT")
        assert refused == 20
        assert stored() == 20
        app.close()
        assert stored() == 20
        """,
    )


@pytest.mark.rule("STO-01")
@pytest.mark.parametrize(
    "call",
    [
        "sqlite3.connect('holdbeat.db')",
        "sqlite3.connect(b'holdbeat.db')",
        "sqlite3.connect(Path('holdbeat.db'))",
        "sqlite3.connect(os.path.abspath('holdbeat.db'), check_same_thread=False)",
        "sqlite3.connect('../' + os.path.basename(os.getcwd()) + '/holdbeat.db')",
        "sqlite3.connect('file:holdbeat.db?mode=ro', uri=True)",
        "sqlite3.connect('file:%68oldbeat.db?immutable=1#x', uri=True)",
        "sqlite3.connect('file://' + os.path.abspath('holdbeat.db'), uri=True)",
        "sqlite3.connect('file://localhost' + os.path.abspath('holdbeat.db'), uri=True)",
        "sqlite3.connect('link.db')",
        "sqlite3.connect('hard.db')",
        "sqlite3.Connection('holdbeat.db')",
    ],
)
def test_sqlite3_is_refused_an_open_store_however_its_file_is_named(tmp_path: Path, call: str) -> None:
    run(
        tmp_path,
        f"""
        app.store
        os.symlink("holdbeat.db", "link.db")
        os.link("holdbeat.db", "hard.db")
        assert refusal(lambda: {call}) == SECOND_LIBRARY
        app.enqueue_sync(add, a=1)
        assert stored() == 1
        sqlite3.connect("own.db").execute("CREATE TABLE orders (id)")
        sqlite3.connect(":memory:").execute("CREATE TABLE orders (id)")
        app.close()
        {call}.execute("SELECT count(*) FROM sqlite_master").fetchall()
        """,
    )


@pytest.mark.rule("STO-01")
@pytest.mark.parametrize(
    "call",
    ["sqlite3.connect('holdbeat.db')", "sqlite3.connect('hard.db')", "open('holdbeat.db', 'rb')"],
)
def test_a_store_is_not_opened_while_something_else_in_the_process_has_its_file_open(tmp_path: Path, call: str) -> None:
    run(
        tmp_path,
        f"""
        app.store
        app.close()
        os.link("holdbeat.db", "hard.db")
        first = {call}
        if hasattr(first, "execute"):
            first.execute("BEGIN")
            first.execute("CREATE TABLE orders (id)")
        assert refusal(lambda: app.store) == STORE_REFUSED
        if hasattr(first, "execute"):
            # Its locks are still there: another process cannot write.
            name = first.execute("PRAGMA database_list").fetchone()[2]
            write = f"import sqlite3; sqlite3.connect({{name!r}}, timeout=0).execute('CREATE TABLE other (id)')"
            assert b"locked" in subprocess.run([sys.executable, "-c", write], capture_output=True).stderr
            first.execute("COMMIT")
        first.close()
        app.enqueue_sync(add, a=1)
        assert stored() == 1
        app.close()
        """,
    )


@pytest.mark.rule("STO-01")
def test_a_pool_of_sqlite3_in_four_threads_beside_a_worker_is_refused_and_no_job_is_lost(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import asyncio
        app.store
        refused, acknowledged = [], []
        def work():
            for number in range(50):
                refused.append(refusal(lambda: sqlite3.connect("holdbeat.db", timeout=5)))
                acknowledged.append(app.enqueue_sync(add, a=number).id)
        async def main():
            async with app.running():
                await asyncio.gather(*[asyncio.to_thread(work) for _ in range(4)])
        asyncio.run(main())
        assert set(refused) == {SECOND_LIBRARY} and len(refused) == 200
        assert len(acknowledged) == 200 and stored() == 200
        assert app.store.integrity_problems() == []
        app.close()
        """,
    )


@pytest.mark.rule("STO-01")
@pytest.mark.parametrize("call", ["write_sync", "read_sync"])
def test_damage_by_a_second_library_is_refused_with_its_cause(tmp_path: Path, call: str) -> None:
    """The damage may be met before the descriptors are looked at again."""
    run(
        tmp_path,
        f"""
        app.enqueue_sync(add, a=1)
        app.close()
        app.store
        own = sqlite3.connect("own.db")
        own.execute("ATTACH 'holdbeat.db' AS jobs")
        app.store._file._watch._poll_at = float("inf")
        app.store.write_sync(lambda tx: tx.rows("PRAGMA shrink_memory"))
        damage = "import os; f = open('holdbeat.db', 'r+b'); size = os.fstat(f.fileno()).st_size; "
        damage += "f.seek(4096); f.write(bytes([7]) * (size - 4096))"
        subprocess.run([sys.executable, "-c", damage], check=True)
        found = refusal(lambda: app.store.{call}(lambda tx: tx.rows("SELECT * FROM jobs")))
        assert found == STORE_REFUSED, found
        """,
    )


@pytest.mark.rule("STO-01", "OPS-03")
def test_what_the_hook_cannot_see_stops_the_store_and_doctor_tells_of_it(tmp_path: Path) -> None:
    """ATTACH raises no audit event, nor does another native library."""
    run(
        tmp_path,
        """
        app.enqueue_sync(add, a=1)
        topic_sets = []
        app.store.listen(topic_sets.append)
        own = sqlite3.connect("own.db")
        own.execute("ATTACH 'holdbeat.db' AS jobs")
        poll_at_every_call()
        for _ in range(2):
            assert refusal(lambda: app.enqueue_sync(add, a=1)) == STORE_REFUSED
            assert refusal(lambda: app.store.read_sync(lambda tx: None)) == STORE_REFUSED
        assert frozenset({"refused"}) in topic_sets
        """,
    )
    assert len(recorded_damage(str(tmp_path / "holdbeat.db"))) == 1
    holdbeat = Command(tmp_path, f"sqlite:///{tmp_path / 'holdbeat.db'}")
    for words in (["doctor", "--json"], ["doctor", "--quick", "--json"]):
        checks = {check["name"]: check for check in holdbeat(*words, code=1).json["checks"]}
        assert checks["damage"]["state"] == "wrong"
        assert "Jobs may be missing" in checks["damage"]["detail"] and "sqlite3" in checks["damage"]["detail"]
        assert "restore" in checks["damage"]["remedy"]
    copy = str(tmp_path / "copy.db")
    holdbeat("backup", copy)
    holdbeat("restore", copy, "--force")
    assert recorded_damage(str(tmp_path / "holdbeat.db")) == []
    assert {check["state"] for check in holdbeat("doctor", "--json").json["checks"]} <= {"ok", "warning"}


@pytest.mark.rule("STO-01")
def test_the_file_of_an_open_store_cannot_be_opened_as_a_plain_file(tmp_path: Path) -> None:
    """Closing it would drop the locks."""
    run(
        tmp_path,
        """
        app.enqueue_sync(add, a=1)
        in_use = ("Conflict", "store_in_use")
        assert refusal(lambda: open("holdbeat.db", "rb")) == in_use
        assert refusal(lambda: Path("holdbeat.db").read_bytes()) == in_use
        assert refusal(lambda: os.open("holdbeat.db-shm", os.O_RDONLY)) == in_use
        assert refusal(lambda: shutil.copy("holdbeat.db", "copy.db")) == in_use
        from holdbeat.store.maintenance.backup import backup

        backup(app.store.path, "backup.db")
        app.close()
        shutil.copy("holdbeat.db", "copy.db")
        """,
    )


@pytest.mark.rule("STO-01", "OPS-06")
def test_another_process_may_use_sqlite3_on_the_store_at_the_same_time(tmp_path: Path) -> None:
    run(
        tmp_path,
        '''
        app.store
        other = """
        import sqlite3, sys
        for number in range(100):
            connection = sqlite3.connect("holdbeat.db", timeout=30)
            with connection:
                connection.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER)")
                connection.execute("INSERT INTO orders VALUES (?)", (number,))
            connection.close()
        """
        import textwrap
        others = [subprocess.Popen([sys.executable, "-c", textwrap.dedent(other)]) for _ in range(2)]
        for number in range(100):
            app.enqueue_sync(add, a=number)
        assert [process.wait(60) for process in others] == [0, 0]
        poll_at_every_call()
        app.enqueue_sync(add, a=1)
        assert stored() == 101
        with app.connection() as connection:
            assert connection.execute("SELECT count(*) FROM orders").fetchall() == [(200,)]
        assert app.store.integrity_problems() == []
        app.close()
        ''',
    )


@pytest.mark.rule("STO-01")
def test_connections_of_the_stores_own_library_are_never_taken_for_foreign_ones(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        from holdbeat.store.sqlite import second_library
        second_library.SecondLibraryWatch.poll_every_s = 0.0
        app.store
        app.close()
        first = apsw.Connection("holdbeat.db")  # before the store, and before anybody watched
        first.execute("SELECT count(*) FROM jobs").fetchall()
        apsw.connection_hooks.clear()
        app.enqueue_sync(add, a=0)
        second = App("sqlite:///holdbeat.db")
        second.store
        attached = apsw.Connection(":memory:")
        until, failed = time.monotonic() + 4, []

        def open_and_close(deed):
            try:
                while time.monotonic() < until:
                    deed()
            except BaseException as error:
                failed.append(error)
                raise

        def own():
            with app.connection() as connection:
                connection.execute("SELECT 1").fetchall()

        def read_only():
            connection = apsw.Connection("holdbeat.db", flags=apsw.SQLITE_OPEN_READONLY)
            connection.execute("SELECT count(*) FROM jobs").fetchall()
            connection.close()

        def attach():
            attached.execute("ATTACH 'holdbeat.db' AS jobs").fetchall()
            attached.execute("SELECT count(*) FROM jobs.jobs").fetchall()
            attached.execute("DETACH jobs").fetchall()

        def enqueue():
            app.enqueue_sync(add, a=1)
            second.store.read_sync(lambda tx: tx.rows("SELECT count(*) FROM jobs"))

        def reopen():
            third = App("sqlite:///holdbeat.db")
            third.store
            third.close()

        deeds = [own, read_only, enqueue, enqueue, reopen]
        threads = [threading.Thread(target=open_and_close, args=(deed,)) for deed in deeds]
        for thread in threads: thread.start()
        for _ in range(20):
            attach()
            time.sleep(0.05)
        for thread in threads: thread.join()
        assert failed == [], failed
        app.close()
        assert refusal(lambda: sqlite3.connect("holdbeat.db")) == SECOND_LIBRARY  # the other App has it open
        second.close()
        first.close()
        sqlite3.connect("holdbeat.db").close()
        """,
    )


@pytest.mark.rule("STO-01")
def test_descriptors_that_the_own_library_keeps_after_a_connection_was_closed_are_its_own(tmp_path: Path) -> None:
    """SQLite closes none of them while it holds a lock on the file: it would drop the lock."""
    run(
        tmp_path,
        """
        from holdbeat.store.sqlite.second_library import descriptors_of
        app.enqueue_sync(add, a=0)
        status = os.stat("holdbeat.db")
        before = descriptors_of((status.st_dev, status.st_ino))
        attached = apsw.Connection(":memory:")
        for name in ("one", "two"):
            attached.execute(f"ATTACH 'holdbeat.db' AS {name}").fetchall()
            attached.execute(f"SELECT count(*) FROM {name}.jobs").fetchall()
        attached.execute("ATTACH 'file:holdbeat.db?mode=ro' AS three").fetchall()
        attached.close()
        assert len(descriptors_of((status.st_dev, status.st_ino)) - before) >= 2
        poll_at_every_call()
        app.enqueue_sync(add, a=1)
        assert stored() == 2
        app.close()
        """,
    )


@pytest.mark.rule("STO-01")
def test_a_forked_child_is_another_process_until_it_opens_the_store_itself(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        app.enqueue_sync(add, a=1)
        own = apsw.Connection("holdbeat.db")
        own.execute("SELECT count(*) FROM jobs").fetchall()
        own.close()
        child = os.fork()
        if child == 0:
            try:
                connection = sqlite3.connect("holdbeat.db")
                assert connection.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
                assert refusal(lambda: app.store) == STORE_REFUSED
                connection.close()
                app.enqueue_sync(add, a=2)
                assert refusal(lambda: sqlite3.connect("holdbeat.db")) == SECOND_LIBRARY
                app.close()
                os._exit(0)
            finally:
                import traceback; traceback.print_exc()
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert refusal(lambda: sqlite3.connect("holdbeat.db")) == SECOND_LIBRARY
        poll_at_every_call()
        app.enqueue_sync(add, a=3)
        assert stored() == 3
        app.close()
        """,
    )


@pytest.mark.rule("STO-01", "OPS-03")
def test_a_worker_whose_handler_attaches_the_store_to_sqlite3_stops_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(
        "import sqlite3\n"
        "from holdbeat import App\n"
        "app = App()\n"
        "own = sqlite3.connect('own.db', check_same_thread=False)\n"
        "@app.job\n"
        "def attach() -> None:\n"
        "    own.execute(\"ATTACH 'holdbeat.db' AS jobs\")\n"
    )
    enqueue = "import work; work.app.enqueue_sync(work.attach)"
    subprocess.run([sys.executable, "-c", enqueue], cwd=tmp_path, check=True)
    worker = subprocess.run(
        [sys.executable, "-m", "holdbeat", "worker", "work:app"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert worker.returncode == 3
    assert "open a second time in this process" in worker.stderr and "app.connection()" in worker.stderr
