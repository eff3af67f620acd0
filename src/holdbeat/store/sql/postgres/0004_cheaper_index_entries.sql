-- use before slot: the slots of a worker are used about equally often, so new entries are at the end of the index. With the
-- slot first each was on a page of its own.
ALTER TABLE leases DROP CONSTRAINT leases_worker_id_slot_use_key;
ALTER TABLE leases ADD UNIQUE (worker_id, use, slot);

-- An id gets another entry each time its row is written: a job three, a run two. Room for them beside the first one spares
-- the search for dead entries and the split of a full page. The pages would be as empty after the split.
ALTER INDEX jobs_pkey SET (fillfactor = 40);
ALTER INDEX job_runs_pkey SET (fillfactor = 50);
ALTER INDEX job_runs_job_id_key SET (fillfactor = 50);
