-- Times are ISO-8601 UTC text with milliseconds, the same string that the API shows; it sorts as it should.
-- JSON is text. Booleans are 0 and 1.

CREATE TABLE jobs (
    id TEXT PRIMARY KEY NOT NULL,
    type TEXT NOT NULL,
    params TEXT NOT NULL DEFAULT '{}',
    status TEXT NOT NULL DEFAULT 'QUEUED'
        CHECK (status IN ('QUEUED', 'RUNNING', 'COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED', 'CONTINUED')),
    priority INTEGER NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 100),
    position INTEGER NOT NULL,
    resource TEXT NOT NULL DEFAULT 'default',
    template_id TEXT,
    schedule_id TEXT,
    scheduled_for TEXT,
    group_id TEXT,
    sequence INTEGER,
    retry_of TEXT,
    retry_kind TEXT CHECK (retry_kind IN ('auto', 'manual', 'continue')),
    retried_by TEXT,
    permanently_failed INTEGER NOT NULL DEFAULT 0,
    retry_policy TEXT NOT NULL DEFAULT '{"max_attempts":3,"base_delay_s":10,"max_delay_s":3600,"jitter":0}',
    timeout_s REAL,
    cancel_grace_s REAL,
    not_before TEXT,
    idempotency_key TEXT,
    request_hash TEXT,
    webhook_url TEXT,
    labels TEXT NOT NULL DEFAULT '{}',
    created_at TEXT NOT NULL,
    started_at TEXT,
    finished_at TEXT,
    cancel_requested_at TEXT,
    cancel_reason TEXT,
    hold INTEGER NOT NULL DEFAULT 0,
    effective_priority INTEGER NOT NULL DEFAULT 0,
    ages_at TEXT,
    attempt INTEGER NOT NULL DEFAULT 0,
    trace TEXT,
    partition TEXT NOT NULL DEFAULT '',
    title TEXT NOT NULL DEFAULT '',
    root_id TEXT,
    waits TEXT,
    on_upstream TEXT CHECK (on_upstream IN ('cancel', 'skip', 'run')),
    is_awaited INTEGER NOT NULL DEFAULT 0,
    unique_key TEXT,
    unique_while TEXT CHECK (unique_while IN ('queued', 'unfinished')),
    expires_at TEXT,
    parent_id TEXT,
    is_detached INTEGER NOT NULL DEFAULT 0,
    weight INTEGER NOT NULL DEFAULT 1,
    affinity TEXT NOT NULL DEFAULT '',
    preemption INTEGER NOT NULL DEFAULT 0,
    put_first INTEGER NOT NULL DEFAULT 0
);

-- weight: slots of its resource that it takes. affinity: what a worker keeps loaded for it. preemption: 1 if it may be
-- interrupted for others, 2 if others may be for it. put_first: somebody moved it to the top.
CREATE INDEX jobs_heavy ON jobs (resource, type) WHERE status = 'QUEUED' AND hold = 0 AND weight > 1;
CREATE INDEX jobs_affinity ON jobs (resource, type, effective_priority DESC, affinity, position, created_at, id)
    WHERE status = 'QUEUED' AND hold = 0 AND affinity <> '';
CREATE INDEX jobs_preempting ON jobs (priority DESC, position, created_at, id)
    WHERE status = 'QUEUED' AND hold = 0 AND preemption >= 2;

-- The claim reads this one, and nothing else: what may not run now is not in it. It holds the whole order, because
-- PostgreSQL, before its first ANALYZE, would rather sort all ready jobs than a few of them at a time.
CREATE INDEX jobs_ready ON jobs (resource, type, effective_priority DESC, position, created_at, id)
    WHERE status = 'QUEUED' AND hold = 0;
-- For limits that count by partition: the first job of each partition, found without reading past those of another.
-- Statements that need this order say `hold BETWEEN 0 AND 0`: before its first ANALYZE PostgreSQL would read all ready jobs
-- from jobs_ready and sort them, and that index is only for statements that say `hold = 0`.
CREATE INDEX jobs_turns ON jobs (resource, type, effective_priority DESC, partition, position, created_at, id)
    WHERE status = 'QUEUED' AND hold BETWEEN 0 AND 0 AND partition <> '';
CREATE INDEX jobs_delayed ON jobs (not_before) WHERE status = 'QUEUED' AND hold = 1;
-- ages_at: the instant up to which a job's waiting has been counted; null for jobs that nobody has counted yet.
CREATE INDEX jobs_ageing ON jobs (ages_at) WHERE status = 'QUEUED' AND hold < 1 AND effective_priority < 100;
CREATE INDEX jobs_queue ON jobs (priority DESC, position, created_at, id) WHERE status = 'QUEUED';
CREATE INDEX jobs_running ON jobs (priority, position) WHERE status = 'RUNNING';
CREATE INDEX jobs_outcome ON jobs (status, id) WHERE status IN ('FAILED', 'SKIPPED', 'CANCELLED');
CREATE INDEX jobs_undecided ON jobs (id) WHERE status = 'FAILED' AND retried_by IS NULL AND permanently_failed = 0;
CREATE UNIQUE INDEX jobs_key ON jobs (idempotency_key) WHERE idempotency_key IS NOT NULL;
-- A running job has its unique key only if it keeps it until it has ended.
CREATE UNIQUE INDEX jobs_unique ON jobs (unique_key)
    WHERE unique_key IS NOT NULL AND (status = 'QUEUED' OR (status = 'RUNNING' AND unique_while = 'unfinished'));
CREATE INDEX jobs_children ON jobs (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX jobs_expiring ON jobs (expires_at) WHERE status = 'QUEUED' AND expires_at IS NOT NULL;
CREATE UNIQUE INDEX jobs_auto_retry ON jobs (retry_of) WHERE retry_kind = 'auto';
CREATE UNIQUE INDEX jobs_continuation ON jobs (retry_of) WHERE retry_kind = 'continue';
CREATE INDEX jobs_continued ON jobs (id) WHERE status = 'CONTINUED';
CREATE INDEX jobs_manual_retry ON jobs (retry_of) WHERE retry_kind = 'manual';
-- The unfinished jobs of a chain, of which there is one, or one for each manual retry.
CREATE INDEX jobs_chain ON jobs (root_id) WHERE root_id IS NOT NULL AND status IN ('QUEUED', 'RUNNING');
CREATE INDEX jobs_group ON jobs (group_id, sequence) WHERE group_id IS NOT NULL;
CREATE INDEX jobs_schedule ON jobs (schedule_id, id) WHERE schedule_id IS NOT NULL;
CREATE INDEX jobs_in_flight ON jobs (schedule_id)
    WHERE schedule_id IS NOT NULL AND status IN ('QUEUED', 'RUNNING');
CREATE INDEX jobs_template ON jobs (template_id, id) WHERE template_id IS NOT NULL;
CREATE INDEX jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL;

-- SQLite does not say which trigger refused: so each message begins with its trigger's name. Messages are literals:
-- a library before 3.47 takes a file with a computed one for malformed, and people read the file with what they have.
CREATE TRIGGER jobs_params_are_frozen BEFORE UPDATE OF params ON jobs
    WHEN old.status <> 'QUEUED' AND new.params IS NOT old.params
BEGIN
    SELECT RAISE(ABORT, 'jobs_params_are_frozen: params cannot change after a job has left the queue');
END;

CREATE TRIGGER jobs_status_is_final BEFORE UPDATE OF status ON jobs
    WHEN (new.status = 'QUEUED' AND old.status <> 'QUEUED')
      OR (new.status = 'RUNNING' AND old.status NOT IN ('QUEUED', 'RUNNING'))
BEGIN
    SELECT CASE old.status || ' -> ' || new.status
        WHEN 'RUNNING -> QUEUED' THEN RAISE(ABORT, 'jobs_status_is_final: illegal status change: RUNNING -> QUEUED')
        WHEN 'COMPLETED -> QUEUED' THEN RAISE(ABORT, 'jobs_status_is_final: illegal status change: COMPLETED -> QUEUED')
        WHEN 'FAILED -> QUEUED' THEN RAISE(ABORT, 'jobs_status_is_final: illegal status change: FAILED -> QUEUED')
        WHEN 'SKIPPED -> QUEUED' THEN RAISE(ABORT, 'jobs_status_is_final: illegal status change: SKIPPED -> QUEUED')
        WHEN 'CANCELLED -> QUEUED' THEN RAISE(ABORT, 'jobs_status_is_final: illegal status change: CANCELLED -> QUEUED')
        WHEN 'COMPLETED -> RUNNING' THEN RAISE(ABORT, 'jobs_status_is_final: illegal status change: COMPLETED -> RUNNING')
        WHEN 'FAILED -> RUNNING' THEN RAISE(ABORT, 'jobs_status_is_final: illegal status change: FAILED -> RUNNING')
        WHEN 'SKIPPED -> RUNNING' THEN RAISE(ABORT, 'jobs_status_is_final: illegal status change: SKIPPED -> RUNNING')
        WHEN 'CANCELLED -> RUNNING' THEN RAISE(ABORT, 'jobs_status_is_final: illegal status change: CANCELLED -> RUNNING')
        WHEN 'CONTINUED -> QUEUED' THEN RAISE(ABORT, 'jobs_status_is_final: illegal status change: CONTINUED -> QUEUED')
        WHEN 'CONTINUED -> RUNNING' THEN RAISE(ABORT, 'jobs_status_is_final: illegal status change: CONTINUED -> RUNNING')
        ELSE RAISE(ABORT, 'jobs_status_is_final: illegal status change')
    END;
END;

-- Whoever changes a delay or a priority by hand changes what the claim goes by: hold and effective_priority follow.
-- A delay that is over by then is found by the next claim.
CREATE TRIGGER jobs_hold_follows AFTER UPDATE OF not_before ON jobs
    WHEN new.status = 'QUEUED' AND new.hold IN (0, 1) AND new.hold = old.hold AND new.not_before IS NOT old.not_before
BEGIN
    UPDATE jobs SET hold = (new.not_before IS NOT NULL) WHERE id = new.id;
END;
CREATE TRIGGER jobs_rank_follows AFTER UPDATE OF priority ON jobs
    WHEN new.status = 'QUEUED' AND new.priority <> old.priority AND new.effective_priority = old.effective_priority
BEGIN
    UPDATE jobs SET effective_priority = new.priority WHERE id = new.id;
END;
CREATE TRIGGER jobs_written_by_hand AFTER INSERT ON jobs
    WHEN new.status = 'QUEUED'
     AND (new.effective_priority <> new.priority OR (new.hold = 0 AND new.not_before IS NOT NULL))
BEGIN
    UPDATE jobs SET effective_priority = new.priority, hold = max(new.hold, new.not_before IS NOT NULL)
    WHERE id = new.id;
END;

CREATE TABLE job_runs (
    id TEXT PRIMARY KEY NOT NULL,
    job_id TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL DEFAULT '',
    resource TEXT NOT NULL DEFAULT 'default',
    template_id TEXT,
    params_snapshot TEXT NOT NULL DEFAULT '{}',
    worker_id TEXT,
    slot INTEGER,
    fence INTEGER NOT NULL DEFAULT 0,
    started_at TEXT NOT NULL,
    finished_at TEXT,
    status TEXT CHECK (status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CONTINUED')),
    exit_code INTEGER,
    error TEXT,
    error_kind TEXT CHECK (error_kind IN
        ('error', 'exit', 'timeout', 'crash', 'lost', 'interrupted', 'cancelled', 'rejected', 'throttled')),
    artifacts TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX job_runs_finished ON job_runs (type, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX job_runs_outcome ON job_runs (status, id) WHERE status IN ('FAILED', 'SKIPPED');

CREATE TRIGGER job_runs_start_is_frozen
    BEFORE UPDATE OF id, job_id, type, resource, template_id, params_snapshot, worker_id, slot, fence, started_at
    ON job_runs
BEGIN
    SELECT RAISE(ABORT, 'job_runs_start_is_frozen: the columns that a run starts with cannot change');
END;
CREATE TRIGGER job_runs_end_is_written_once
    BEFORE UPDATE OF finished_at, status, exit_code, error, error_kind, artifacts ON job_runs
    WHEN old.status IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'job_runs_end_is_written_once: a run that has ended cannot change');
END;

-- The id of a job's lease is that of its run, so a job has at most one without an index of its own.
CREATE TABLE leases (
    id TEXT PRIMARY KEY NOT NULL,
    job_id TEXT,
    reservation_id TEXT,
    worker_id TEXT,
    slot INTEGER,
    resource TEXT NOT NULL,
    type TEXT NOT NULL,
    fence INTEGER NOT NULL,
    acquired_at TEXT NOT NULL,
    heartbeat_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    partition TEXT NOT NULL DEFAULT '',
    number INTEGER,
    use INTEGER NOT NULL DEFAULT 0,
    weight INTEGER NOT NULL DEFAULT 1,
    numbers TEXT,
    preempted_for TEXT,
    UNIQUE (worker_id, slot, use),
    CHECK ((job_id IS NULL) <> (reservation_id IS NULL))
) WITHOUT ROWID;

-- numbers: those of all its slots, if it weighs more than one. preempted_for: the job or direct request for which
-- its handler was told to end.
-- number: that of the slot within its resource, where a limit gives the resource slots.
-- use: how often its worker had used the slot before. A slot that its worker takes to be free and that is held after all
-- is refused; and no key comes twice, because PostgreSQL looks at every dead row with the key of a new one for as long as
-- any snapshot could see them.
CREATE UNIQUE INDEX leases_number ON leases (resource, number) WHERE number IS NOT NULL;
CREATE UNIQUE INDEX leases_reservation ON leases (reservation_id) WHERE reservation_id IS NOT NULL;

CREATE TABLE job_groups (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT,
    mode TEXT NOT NULL CHECK (mode IN ('sequential', 'parallel')),
    on_failure TEXT NOT NULL DEFAULT 'stop' CHECK (on_failure IN ('stop', 'continue', 'skip')),
    status TEXT NOT NULL DEFAULT 'QUEUED'
        CHECK (status IN ('QUEUED', 'RUNNING', 'COMPLETED', 'PARTIAL', 'CANCELLED')),
    created_at TEXT NOT NULL,
    started_at TEXT,
    finished_at TEXT,
    is_awaited INTEGER NOT NULL DEFAULT 0,
    then_job_id TEXT
);
CREATE INDEX job_groups_finished ON job_groups (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX job_groups_unfinished ON job_groups (id) WHERE status IN ('QUEUED', 'RUNNING');

CREATE TABLE job_templates (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL,
    default_params TEXT NOT NULL DEFAULT '{}',
    priority INTEGER,
    resource TEXT,
    retry_policy TEXT,
    timeout_s REAL,
    cancel_grace_s REAL,
    webhook_url TEXT,
    labels TEXT NOT NULL DEFAULT '{}',
    description TEXT,
    archived_at TEXT,
    version INTEGER NOT NULL DEFAULT 1,
    created_at TEXT NOT NULL
);

CREATE TABLE schedules (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL UNIQUE,
    -- What lists and searches read of every schedule stands first: a column is reached through those before it.
    endpoint TEXT,
    search_text TEXT GENERATED ALWAYS AS (lower(
        name || char(10) || coalesce(type, '') || char(10) || id || char(10)
        || coalesce(json_extract(endpoint, '$.url'), '') || char(10)
        || replace(replace(coalesce(labels, ''), '": "', '='), '":"', '=')
    )) STORED,
    enabled INTEGER NOT NULL DEFAULT 1,
    paused_until TEXT,
    failure_count INTEGER NOT NULL DEFAULT 0,
    next_run_at TEXT,
    last_run_at TEXT,
    trouble TEXT,
    template_id TEXT,
    type TEXT,
    params TEXT,
    priority INTEGER,
    resource TEXT,
    retry_policy TEXT,
    timeout_s REAL,
    cancel_grace_s REAL,
    webhook_url TEXT,
    labels TEXT,
    cron TEXT,
    interval_s REAL,
    timezone TEXT NOT NULL DEFAULT 'UTC',
    dst TEXT NOT NULL DEFAULT 'vixie' CHECK (dst IN ('vixie', 'skip', 'shift')),
    jitter_s REAL NOT NULL DEFAULT 0,
    start_at TEXT,
    end_at TEXT,
    catch_up TEXT NOT NULL DEFAULT 'latest' CHECK (catch_up IN ('latest', 'none', 'all')),
    catch_up_limit INTEGER NOT NULL DEFAULT 100,
    misfire_grace_s REAL,
    overlap TEXT NOT NULL DEFAULT 'allow' CHECK (overlap IN ('allow', 'skip', 'queue_one', 'cancel_previous')),
    adaptive INTEGER NOT NULL DEFAULT 0,
    min_interval_s REAL,
    max_interval_s REAL,
    pause_reason TEXT,
    hint_interval_s REAL,
    hint_interval_expires_at TEXT,
    hint_interval_reason TEXT,
    hint_next_run_at TEXT,
    hint_next_run_expires_at TEXT,
    hint_next_run_reason TEXT,
    replan_at TEXT,
    wake_at TEXT,
    last_decision TEXT,
    version INTEGER NOT NULL DEFAULT 1,
    created_at TEXT NOT NULL,
    CHECK ((cron IS NULL) <> (interval_s IS NULL))
);
-- wake_at: when the trigger must look at this schedule next (its jittered due time, or a hint's end).
CREATE INDEX schedules_wake ON schedules (wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX schedules_template ON schedules (template_id) WHERE template_id IS NOT NULL;
-- What recovery looks through: adaptive schedules that are in flight, or have lost their plan.
CREATE INDEX schedules_unplanned ON schedules (id) WHERE enabled = 1 AND adaptive = 1 AND wake_at IS NULL;
-- trouble: why the due times of a schedule cannot be computed, such as a time zone that is gone. The overview lists
-- schedules that fail or have trouble.
CREATE INDEX schedules_in_need ON schedules (failure_count, id)
    WHERE enabled = 1 AND (failure_count > 0 OR trouble IS NOT NULL);
-- Lists of schedules and of endpoints show what fails first, and count those in each state.
CREATE INDEX schedules_listed ON schedules (failure_count DESC, name) WHERE endpoint IS NULL;
CREATE INDEX endpoints_listed ON schedules (failure_count DESC, name) WHERE endpoint IS NOT NULL;
-- A text is looked for in these alone: they are a fifth of what the whole rows are.
CREATE INDEX schedules_searched ON schedules (search_text, id) WHERE endpoint IS NULL;
CREATE INDEX endpoints_searched ON schedules (search_text, id) WHERE endpoint IS NOT NULL;
CREATE INDEX schedules_held ON schedules (id) WHERE enabled = 0 OR paused_until IS NOT NULL;

-- Whoever writes a plan by hand writes next_run_at alone: wake_at follows.
CREATE TRIGGER schedules_wake_follows AFTER UPDATE OF next_run_at ON schedules
    WHEN new.next_run_at IS NOT old.next_run_at AND new.wake_at IS old.wake_at
BEGIN
    UPDATE schedules SET wake_at = CASE
        WHEN new.enabled = 0 OR new.next_run_at IS NULL THEN NULL
        WHEN new.replan_at < new.next_run_at THEN new.replan_at
        ELSE new.next_run_at END
    WHERE id = new.id;
END;

CREATE TABLE occurrences (
    id TEXT PRIMARY KEY NOT NULL,
    schedule_id TEXT NOT NULL,
    due_at TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('fired', 'skipped', 'missed', 'coalesced', 'manual')),
    job_id TEXT,
    reason TEXT,
    count INTEGER NOT NULL DEFAULT 1,
    recorded_at TEXT NOT NULL,
    late_s REAL,
    UNIQUE (schedule_id, due_at)
);
CREATE INDEX occurrences_recorded ON occurrences (recorded_at);

CREATE TABLE direct_reservations (
    id TEXT PRIMARY KEY NOT NULL,
    type TEXT NOT NULL,
    resource TEXT NOT NULL DEFAULT 'default',
    status TEXT NOT NULL DEFAULT 'ACTIVE' CHECK (status IN ('ACTIVE', 'RELEASED', 'EXPIRED')),
    params TEXT NOT NULL DEFAULT '{}',
    timeout_s REAL,
    cancel_grace_s REAL,
    requested_at TEXT NOT NULL,
    granted_at TEXT,
    finished_at TEXT,
    expires_at TEXT,
    owner TEXT,
    outcome TEXT CHECK (outcome IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED')),
    error TEXT,
    error_kind TEXT,
    result TEXT,
    worker_id TEXT,
    fence INTEGER,
    cancel_requested_at TEXT,
    partition TEXT NOT NULL DEFAULT '',
    kind TEXT NOT NULL DEFAULT 'direct' CHECK (kind IN ('direct', 'slot', 'gate')),
    title TEXT NOT NULL DEFAULT '',
    client TEXT,
    ttl_s REAL,
    number INTEGER,
    weight INTEGER NOT NULL DEFAULT 1,
    preempts INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX direct_reservations_active ON direct_reservations (requested_at, id) WHERE status = 'ACTIVE';
CREATE INDEX direct_reservations_finished ON direct_reservations (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX direct_reservations_held ON direct_reservations (type, finished_at)
    WHERE kind <> 'direct' AND granted_at IS NOT NULL AND finished_at IS NOT NULL;

CREATE TABLE webhooks (
    id TEXT PRIMARY KEY NOT NULL,
    url TEXT NOT NULL,
    events TEXT,
    secret TEXT NOT NULL,
    previous_secret TEXT,
    rotated_at TEXT,
    enabled INTEGER NOT NULL DEFAULT 1,
    disabled_reason TEXT,
    version INTEGER NOT NULL DEFAULT 1,
    created_at TEXT NOT NULL
);

CREATE TABLE deliveries (
    id TEXT PRIMARY KEY NOT NULL,
    webhook_id TEXT,
    job_id TEXT,
    group_id TEXT,
    event TEXT NOT NULL,
    url TEXT NOT NULL,
    host TEXT NOT NULL DEFAULT '',
    payload TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'DELIVERED', 'FAILED')),
    attempts INTEGER NOT NULL DEFAULT 0,
    next_attempt_at TEXT,
    created_at TEXT NOT NULL,
    delivered_at TEXT,
    finished_at TEXT,
    last_status_code INTEGER,
    last_error TEXT,
    locked_by TEXT,
    locked_until TEXT
);
-- By host, so that a host with a long line can be stepped over.
CREATE INDEX deliveries_pending ON deliveries (host, next_attempt_at, id) WHERE status = 'PENDING';
CREATE INDEX deliveries_failed ON deliveries (id) WHERE status = 'FAILED';
CREATE INDEX deliveries_job ON deliveries (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX deliveries_webhook ON deliveries (webhook_id, id) WHERE webhook_id IS NOT NULL;
CREATE INDEX deliveries_group ON deliveries (group_id) WHERE group_id IS NOT NULL;
CREATE INDEX deliveries_finished ON deliveries (finished_at) WHERE finished_at IS NOT NULL;

CREATE TABLE workers (
    id TEXT PRIMARY KEY NOT NULL,
    kind TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    slots INTEGER NOT NULL,
    http_slots INTEGER NOT NULL DEFAULT 0,
    types TEXT NOT NULL DEFAULT '[]',
    resources TEXT,
    version TEXT NOT NULL DEFAULT '',
    started_at TEXT NOT NULL,
    heartbeat_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    stopping_at TEXT,
    stopped_at TEXT,
    memory_bytes INTEGER,
    cpu_share REAL
);
CREATE INDEX workers_live ON workers (expires_at) WHERE stopped_at IS NULL;

-- Events of one name that one commit wrote for many jobs share a row: count says how many they are, batch holds the
-- columns in which they differ ({"job_id": [...], ...}), and id is that of the last of them.
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    at TEXT NOT NULL,
    job_id TEXT,
    run_id TEXT,
    worker_id TEXT,
    group_id TEXT,
    schedule_id TEXT,
    data TEXT,
    count INTEGER NOT NULL DEFAULT 1,
    batch TEXT
);
CREATE INDEX events_job ON events (job_id, id) WHERE job_id IS NOT NULL;
CREATE INDEX events_batches ON events (at) WHERE batch IS NOT NULL;
-- Events that are not part of every job's or schedule's life can be found by their name.
CREATE INDEX events_rare ON events (name, id) WHERE name NOT IN ('job.queued', 'job.claimed', 'run.ended',
    'job.continued', 'retry.created', 'schedule.fired', 'schedule.planned', 'reservation.requested',
    'reservation.granted', 'reservation.released');

-- One row for each label of a job, written name=value.
CREATE TABLE job_labels (
    label TEXT NOT NULL,
    job_id TEXT NOT NULL,
    PRIMARY KEY (label, job_id)
) WITHOUT ROWID;

CREATE TABLE api_keys (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    prefix TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    scope TEXT NOT NULL CHECK (scope IN ('read', 'write', 'admin')),
    created_at TEXT NOT NULL,
    last_used_at TEXT,
    revoked_at TEXT,
    expires_at TEXT
);

CREATE TABLE job_types (
    name TEXT PRIMARY KEY NOT NULL,
    schema TEXT NOT NULL DEFAULT '{}',
    defaults TEXT NOT NULL DEFAULT '{}',
    aliases TEXT NOT NULL DEFAULT '[]',
    description TEXT,
    announced_at TEXT NOT NULL
);

CREATE TABLE queue_pauses (
    resource TEXT PRIMARY KEY NOT NULL,
    paused_at TEXT NOT NULL,
    paused_by TEXT,
    reason TEXT
);

CREATE TABLE counters (
    name TEXT PRIMARY KEY NOT NULL,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO counters (name, value) VALUES ('fence', 0);

-- What programs declare (origin settings) and what operators set (origin operator, which wins). meta.limits names the
-- state of these rows: whoever changes one by hand must change that value, too.
CREATE TABLE limits (
    name TEXT NOT NULL,
    origin TEXT NOT NULL CHECK (origin IN ('settings', 'operator')),
    source TEXT NOT NULL CHECK (source IN ('concurrency', 'limits', 'operator')),
    resource TEXT,
    type TEXT,
    slots INTEGER CHECK (slots >= 0),
    rate_count INTEGER CHECK (rate_count > 0),
    rate_per_s REAL CHECK (rate_per_s > 0),
    rate_burst INTEGER CHECK (rate_burst >= 0),
    per_partition INTEGER NOT NULL DEFAULT 0,
    fair INTEGER NOT NULL DEFAULT 0,
    changed_at TEXT NOT NULL,
    changed_by TEXT,
    weights TEXT,
    version INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (name, origin),
    CHECK ((rate_count IS NULL) = (rate_per_s IS NULL))
);

-- weights: an object of partitions and how many starts each has in its turn.

-- due: when the next start under this limit would be, if all were evenly spaced; seconds since 1970.
CREATE TABLE rates (
    key TEXT NOT NULL,
    partition TEXT NOT NULL DEFAULT '',
    due REAL NOT NULL,
    PRIMARY KEY (key, partition)
) WITHOUT ROWID;

-- Before when nothing of the partition starts under this limit, because who was called asked for that; seconds since
-- 1970. type: only jobs of this type; empty for all that the limit covers.
CREATE TABLE throttles (
    key TEXT NOT NULL,
    type TEXT NOT NULL,
    partition TEXT NOT NULL,
    until REAL NOT NULL,
    PRIMARY KEY (key, type, partition)
) WITHOUT ROWID;

-- Limits whose slots all go to direct requests while jobs wait.
CREATE TABLE starvations (
    key TEXT PRIMARY KEY NOT NULL,
    limit_name TEXT NOT NULL,
    resource TEXT NOT NULL,
    since TEXT NOT NULL
);

-- How many direct requests in a row got a slot of a limit; kept only with direct_burst.
CREATE TABLE direct_streaks (
    key TEXT PRIMARY KEY NOT NULL,
    length INTEGER NOT NULL
);

-- The partition that was served last under a fair limit.
CREATE TABLE turns (
    key TEXT PRIMARY KEY NOT NULL,
    partition TEXT NOT NULL,
    taken INTEGER NOT NULL DEFAULT 0
);

-- taken: how many starts the partition has had in its turn.

-- How often a worker went on with the affinity that it ran last, and how often it changed to another.
CREATE TABLE affinity_counts (
    resource TEXT PRIMARY KEY NOT NULL,
    kept INTEGER NOT NULL,
    switches INTEGER NOT NULL
);

CREATE TABLE progress (
    run_id TEXT PRIMARY KEY NOT NULL,
    fraction REAL,
    message TEXT,
    -- The steps in which its handler is.
    steps TEXT,
    updated_at TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE run_logs (
    run_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    at TEXT NOT NULL,
    stream TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (run_id, sequence)
) WITHOUT ROWID;

CREATE TABLE artifacts (
    run_id TEXT NOT NULL,
    name TEXT NOT NULL,
    size INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    path TEXT,
    data BLOB,
    created_at TEXT NOT NULL,
    PRIMARY KEY (run_id, name)
);

-- The values that the handlers of a chain keep; root_id is the first job of the chain.
CREATE TABLE steps (
    root_id TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    size INTEGER NOT NULL,
    started_at TEXT NOT NULL,
    duration_s REAL NOT NULL,
    run_id TEXT NOT NULL,
    kept_at TEXT NOT NULL,
    PRIMARY KEY (root_id, name)
);

-- Messages to a chain, numbered by name from 1; they stay until the chain goes.
CREATE TABLE signals (
    root_id TEXT NOT NULL,
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    payload TEXT NOT NULL,
    sent_by TEXT,
    sent_at TEXT NOT NULL,
    PRIMARY KEY (root_id, name, number)
);

-- What handlers ask people; root_id is the first job of the chain that waits for the answer.
CREATE TABLE questions (
    id TEXT PRIMARY KEY NOT NULL,
    root_id TEXT NOT NULL,
    question TEXT NOT NULL,
    choices TEXT,
    schema TEXT,
    asked_at TEXT NOT NULL,
    answer TEXT,
    answered_by TEXT,
    answered_at TEXT
);
CREATE INDEX questions_open ON questions (asked_at, id) WHERE answered_at IS NULL;
CREATE INDEX questions_chain ON questions (root_id);

-- What must end before a chain's first job may start; job_id is that job. upstream_id is a group, or the first job of a
-- chain. Nothing is counted: a job may start when none of its rows is without met_at.
CREATE TABLE dependencies (
    job_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    upstream_id TEXT NOT NULL,
    is_group INTEGER NOT NULL,
    name TEXT,
    met_at TEXT,
    outcome TEXT,
    PRIMARY KEY (job_id, number)
) WITHOUT ROWID;
CREATE INDEX dependencies_upstream ON dependencies (upstream_id);
CREATE INDEX dependencies_unmet ON dependencies (job_id) WHERE met_at IS NULL;

CREATE TABLE meta (
    key TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
) WITHOUT ROWID;
