"""SchemaWatch: ends a process whose store a newer Holdbeat has brought up to date.

Guards OPS-02 for processes that run while another one upgrades the store: they would go on with statements that no
longer fit the tables.
"""

from __future__ import annotations

from typing import ClassVar

from holdbeat.engine.service import Service
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.migrate import schema_refusal

POLL_S = 10.0


class SchemaWatch(Service):
    name: ClassVar[str] = "schema-watch"

    def __init__(self, store: PersistenceAdapter) -> None:
        super().__init__(store, POLL_S)

    async def step(self) -> None:
        refusal = await self.store.read(schema_refusal)
        if refusal is not None:
            raise refusal
