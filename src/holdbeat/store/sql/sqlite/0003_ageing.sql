-- Jobs whose waiting nobody has counted yet (ages_at is null) are in it, too: those of a producer that knows of no
-- ageing, and those from before it was turned on. The claim takes them on through here.
-- From now on ages_at is the instant up to which a job's waiting is counted.
DROP INDEX jobs_ageing;
CREATE INDEX jobs_ageing ON jobs (ages_at) WHERE status = 'QUEUED' AND hold = 0 AND effective_priority < 100;
