-- Ids and other keys compare byte by byte (COLLATE "C"), so that both engines order alike.
-- JSON is kept as it was written (json, not jsonb), so that both engines give back the same numbers.

CREATE TABLE jobs (
    id text COLLATE "C" PRIMARY KEY NOT NULL,
    type text COLLATE "C" NOT NULL,
    params json NOT NULL DEFAULT '{}',
    status text COLLATE "C" NOT NULL DEFAULT 'QUEUED'
        CHECK (status IN ('QUEUED', 'RUNNING', 'COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED', 'CONTINUED')),
    priority bigint NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 100),
    position bigint NOT NULL,
    resource text COLLATE "C" NOT NULL DEFAULT 'default',
    template_id text COLLATE "C",
    schedule_id text COLLATE "C",
    scheduled_for timestamptz,
    group_id text COLLATE "C",
    sequence bigint,
    retry_of text COLLATE "C",
    retry_kind text COLLATE "C" CHECK (retry_kind IN ('auto', 'manual', 'continue')),
    retried_by text COLLATE "C",
    permanently_failed boolean NOT NULL DEFAULT false,
    retry_policy json NOT NULL DEFAULT '{"max_attempts":3,"base_delay_s":10,"max_delay_s":3600,"jitter":0}',
    timeout_s double precision,
    cancel_grace_s double precision,
    not_before timestamptz,
    idempotency_key text COLLATE "C",
    request_hash text COLLATE "C",
    webhook_url text COLLATE "C",
    labels json NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    cancel_requested_at timestamptz,
    cancel_reason text COLLATE "C",
    hold bigint NOT NULL DEFAULT 0,
    effective_priority bigint NOT NULL DEFAULT 0,
    ages_at timestamptz,
    attempt bigint NOT NULL DEFAULT 0,
    trace text COLLATE "C",
    partition text COLLATE "C" NOT NULL DEFAULT '',
    title text COLLATE "C" NOT NULL DEFAULT '',
    root_id text COLLATE "C",
    waits json,
    on_upstream text COLLATE "C" CHECK (on_upstream IN ('cancel', 'skip', 'run')),
    is_awaited boolean NOT NULL DEFAULT false,
    unique_key text COLLATE "C",
    unique_while text COLLATE "C" CHECK (unique_while IN ('queued', 'unfinished')),
    expires_at timestamptz,
    parent_id text COLLATE "C",
    is_detached boolean NOT NULL DEFAULT false,
    weight integer NOT NULL DEFAULT 1,
    affinity text COLLATE "C" NOT NULL DEFAULT '',
    preemption integer NOT NULL DEFAULT 0,
    put_first boolean NOT NULL DEFAULT false
) WITH (fillfactor = 80);

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
-- Before the first ANALYZE PostgreSQL takes this index for as good as jobs_ready, and would read the whole of one of them
-- and sort it. So claims say `hold = 0`, the ageing says `hold < 1 AND attempt >= 0`, and neither can use the other's.
CREATE INDEX jobs_ageing ON jobs (ages_at)
    WHERE status = 'QUEUED' AND hold < 1 AND effective_priority < 100 AND attempt >= 0;
-- Only for statements that say `priority >= 0`, which is always true. After an ANALYZE of an empty queue PostgreSQL takes
-- all these indexes for empty and would read the whole queue from this one, where a claim needs the order of jobs_ready.
CREATE INDEX jobs_queue ON jobs (priority DESC, position, created_at, id) WHERE status = 'QUEUED' AND priority >= 0;
CREATE INDEX jobs_running ON jobs (priority, position) WHERE status = 'RUNNING';
CREATE INDEX jobs_outcome ON jobs (status, id) WHERE status IN ('FAILED', 'SKIPPED', 'CANCELLED');
CREATE INDEX jobs_undecided ON jobs (id) WHERE status = 'FAILED' AND retried_by IS NULL AND NOT permanently_failed;
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

CREATE TABLE job_runs (
    id text COLLATE "C" PRIMARY KEY NOT NULL,
    job_id text COLLATE "C" NOT NULL UNIQUE,
    type text COLLATE "C" NOT NULL DEFAULT '',
    resource text COLLATE "C" NOT NULL DEFAULT 'default',
    template_id text COLLATE "C",
    params_snapshot json NOT NULL DEFAULT '{}',
    worker_id text COLLATE "C",
    slot bigint,
    fence bigint NOT NULL DEFAULT 0,
    started_at timestamptz NOT NULL,
    finished_at timestamptz,
    status text COLLATE "C" CHECK (status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CONTINUED')),
    exit_code bigint,
    error text COLLATE "C",
    error_kind text COLLATE "C" CHECK (error_kind IN
        ('error', 'exit', 'timeout', 'crash', 'lost', 'interrupted', 'cancelled', 'rejected', 'throttled')),
    artifacts json NOT NULL DEFAULT '{}'
);
CREATE INDEX job_runs_finished ON job_runs (type, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX job_runs_outcome ON job_runs (status, id) WHERE status IN ('FAILED', 'SKIPPED');

-- The id of a job's lease is that of its run, so a job has at most one without an index of its own.
CREATE TABLE leases (
    id text COLLATE "C" PRIMARY KEY NOT NULL,
    job_id text COLLATE "C",
    reservation_id text COLLATE "C",
    worker_id text COLLATE "C",
    slot bigint,
    resource text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    fence bigint NOT NULL,
    acquired_at timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    partition text COLLATE "C" NOT NULL DEFAULT '',
    number bigint,
    use bigint NOT NULL DEFAULT 0,
    weight integer NOT NULL DEFAULT 1,
    numbers text COLLATE "C",
    preempted_for text COLLATE "C",
    UNIQUE (worker_id, slot, use),
    CHECK ((job_id IS NULL) <> (reservation_id IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- numbers: those of all its slots, if it weighs more than one. preempted_for: the job or direct request for which
-- its handler was told to end.
-- number: that of the slot within its resource, where a limit gives the resource slots.
-- use: how often its worker had used the slot before. A slot that its worker takes to be free and that is held after all
-- is refused; and no key comes twice, because PostgreSQL looks at every dead row with the key of a new one for as long as
-- any snapshot could see them.
CREATE UNIQUE INDEX leases_number ON leases (resource, number) WHERE number IS NOT NULL;
CREATE UNIQUE INDEX leases_reservation ON leases (reservation_id) WHERE reservation_id IS NOT NULL;

CREATE TABLE job_groups (
    id text COLLATE "C" PRIMARY KEY NOT NULL,
    name text COLLATE "C",
    mode text COLLATE "C" NOT NULL CHECK (mode IN ('sequential', 'parallel')),
    on_failure text COLLATE "C" NOT NULL DEFAULT 'stop' CHECK (on_failure IN ('stop', 'continue', 'skip')),
    status text COLLATE "C" NOT NULL DEFAULT 'QUEUED'
        CHECK (status IN ('QUEUED', 'RUNNING', 'COMPLETED', 'PARTIAL', 'CANCELLED')),
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    is_awaited boolean NOT NULL DEFAULT false,
    then_job_id text COLLATE "C"
);
CREATE INDEX job_groups_finished ON job_groups (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX job_groups_unfinished ON job_groups (id) WHERE status IN ('QUEUED', 'RUNNING');

CREATE TABLE job_templates (
    id text COLLATE "C" PRIMARY KEY NOT NULL,
    name text COLLATE "C" NOT NULL UNIQUE,
    type text COLLATE "C" NOT NULL,
    default_params json NOT NULL DEFAULT '{}',
    priority bigint,
    resource text COLLATE "C",
    retry_policy json,
    timeout_s double precision,
    cancel_grace_s double precision,
    webhook_url text COLLATE "C",
    labels json NOT NULL DEFAULT '{}',
    description text COLLATE "C",
    archived_at timestamptz,
    version bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL
);

CREATE TABLE schedules (
    id text COLLATE "C" PRIMARY KEY NOT NULL,
    name text COLLATE "C" NOT NULL UNIQUE,
    -- What lists and searches read of every schedule stands first: a column is reached through those before it.
    endpoint json,
    search_text text COLLATE "C" GENERATED ALWAYS AS (lower((
        name || chr(10) || coalesce(type, '') || chr(10) || id || chr(10)
        || coalesce(endpoint ->> 'url', '') || chr(10)
        || replace(replace(coalesce(labels::text, ''), '": "', '='), '":"', '=')
    ) COLLATE "C")) STORED,
    enabled boolean NOT NULL DEFAULT true,
    paused_until timestamptz,
    failure_count bigint NOT NULL DEFAULT 0,
    next_run_at timestamptz,
    last_run_at timestamptz,
    trouble text COLLATE "C",
    template_id text COLLATE "C",
    type text COLLATE "C",
    params json,
    priority bigint,
    resource text COLLATE "C",
    retry_policy json,
    timeout_s double precision,
    cancel_grace_s double precision,
    webhook_url text COLLATE "C",
    labels json,
    cron text COLLATE "C",
    interval_s double precision,
    timezone text COLLATE "C" NOT NULL DEFAULT 'UTC',
    dst text COLLATE "C" NOT NULL DEFAULT 'vixie' CHECK (dst IN ('vixie', 'skip', 'shift')),
    jitter_s double precision NOT NULL DEFAULT 0,
    start_at timestamptz,
    end_at timestamptz,
    catch_up text COLLATE "C" NOT NULL DEFAULT 'latest' CHECK (catch_up IN ('latest', 'none', 'all')),
    catch_up_limit bigint NOT NULL DEFAULT 100,
    misfire_grace_s double precision,
    overlap text COLLATE "C" NOT NULL DEFAULT 'allow' CHECK (overlap IN ('allow', 'skip', 'queue_one', 'cancel_previous')),
    adaptive boolean NOT NULL DEFAULT false,
    min_interval_s double precision,
    max_interval_s double precision,
    pause_reason text COLLATE "C",
    hint_interval_s double precision,
    hint_interval_expires_at timestamptz,
    hint_interval_reason text COLLATE "C",
    hint_next_run_at timestamptz,
    hint_next_run_expires_at timestamptz,
    hint_next_run_reason text COLLATE "C",
    replan_at timestamptz,
    wake_at timestamptz,
    last_decision json,
    version bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    CHECK ((cron IS NULL) <> (interval_s IS NULL))
);
-- wake_at: when the trigger must look at this schedule next (its jittered due time, or a hint's end).
CREATE INDEX schedules_wake ON schedules (wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX schedules_template ON schedules (template_id) WHERE template_id IS NOT NULL;
-- What recovery looks through: adaptive schedules that are in flight, or have lost their plan.
CREATE INDEX schedules_unplanned ON schedules (id) WHERE enabled AND adaptive AND wake_at IS NULL;
-- trouble: why the due times of a schedule cannot be computed, such as a time zone that is gone. The overview lists
-- schedules that fail or have trouble.
CREATE INDEX schedules_in_need ON schedules (failure_count, id)
    WHERE enabled AND (failure_count > 0 OR trouble IS NOT NULL);
-- Lists of schedules and of endpoints show what fails first, and count those in each state.
CREATE INDEX schedules_listed ON schedules (failure_count DESC, name) WHERE endpoint IS NULL;
CREATE INDEX endpoints_listed ON schedules (failure_count DESC, name) WHERE endpoint IS NOT NULL;
CREATE INDEX schedules_held ON schedules (id) WHERE NOT enabled OR paused_until IS NOT NULL;

CREATE TABLE occurrences (
    id text COLLATE "C" PRIMARY KEY NOT NULL,
    schedule_id text COLLATE "C" NOT NULL,
    due_at timestamptz NOT NULL,
    status text COLLATE "C" NOT NULL CHECK (status IN ('fired', 'skipped', 'missed', 'coalesced', 'manual')),
    job_id text COLLATE "C",
    reason text COLLATE "C",
    count bigint NOT NULL DEFAULT 1,
    recorded_at timestamptz NOT NULL,
    late_s double precision,
    UNIQUE (schedule_id, due_at)
);
CREATE INDEX occurrences_recorded ON occurrences (recorded_at);

CREATE TABLE direct_reservations (
    id text COLLATE "C" PRIMARY KEY NOT NULL,
    type text COLLATE "C" NOT NULL,
    resource text COLLATE "C" NOT NULL DEFAULT 'default',
    status text COLLATE "C" NOT NULL DEFAULT 'ACTIVE' CHECK (status IN ('ACTIVE', 'RELEASED', 'EXPIRED')),
    params json NOT NULL DEFAULT '{}',
    timeout_s double precision,
    cancel_grace_s double precision,
    requested_at timestamptz NOT NULL,
    granted_at timestamptz,
    finished_at timestamptz,
    expires_at timestamptz,
    owner text COLLATE "C",
    outcome text COLLATE "C" CHECK (outcome IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CANCELLED')),
    error text COLLATE "C",
    error_kind text COLLATE "C",
    result json,
    worker_id text COLLATE "C",
    fence bigint,
    cancel_requested_at timestamptz,
    partition text COLLATE "C" NOT NULL DEFAULT '',
    kind text COLLATE "C" NOT NULL DEFAULT 'direct' CHECK (kind IN ('direct', 'slot', 'gate')),
    title text COLLATE "C" NOT NULL DEFAULT '',
    client text COLLATE "C",
    ttl_s double precision,
    number bigint,
    weight integer NOT NULL DEFAULT 1,
    preempts boolean NOT NULL DEFAULT false
);
CREATE INDEX direct_reservations_active ON direct_reservations (requested_at, id) WHERE status = 'ACTIVE';
CREATE INDEX direct_reservations_finished ON direct_reservations (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX direct_reservations_held ON direct_reservations (type, finished_at)
    WHERE kind <> 'direct' AND granted_at IS NOT NULL AND finished_at IS NOT NULL;

CREATE TABLE webhooks (
    id text COLLATE "C" PRIMARY KEY NOT NULL,
    url text COLLATE "C" NOT NULL,
    events json,
    secret text COLLATE "C" NOT NULL,
    previous_secret text COLLATE "C",
    rotated_at timestamptz,
    enabled boolean NOT NULL DEFAULT true,
    disabled_reason text COLLATE "C",
    version bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL
);

CREATE TABLE deliveries (
    id text COLLATE "C" PRIMARY KEY NOT NULL,
    webhook_id text COLLATE "C",
    job_id text COLLATE "C",
    group_id text COLLATE "C",
    event text COLLATE "C" NOT NULL,
    url text COLLATE "C" NOT NULL,
    host text COLLATE "C" NOT NULL DEFAULT '',
    payload text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'DELIVERED', 'FAILED')),
    attempts bigint NOT NULL DEFAULT 0,
    next_attempt_at timestamptz,
    created_at timestamptz NOT NULL,
    delivered_at timestamptz,
    finished_at timestamptz,
    last_status_code bigint,
    last_error text COLLATE "C",
    locked_by text COLLATE "C",
    locked_until timestamptz
);
-- By host, so that a host with a long line can be stepped over.
CREATE INDEX deliveries_pending ON deliveries (host, next_attempt_at, id) WHERE status = 'PENDING';
CREATE INDEX deliveries_failed ON deliveries (id) WHERE status = 'FAILED';
CREATE INDEX deliveries_job ON deliveries (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX deliveries_webhook ON deliveries (webhook_id, id) WHERE webhook_id IS NOT NULL;
CREATE INDEX deliveries_group ON deliveries (group_id) WHERE group_id IS NOT NULL;
CREATE INDEX deliveries_finished ON deliveries (finished_at) WHERE finished_at IS NOT NULL;

CREATE TABLE workers (
    id text COLLATE "C" PRIMARY KEY NOT NULL,
    kind text COLLATE "C" NOT NULL,
    host text COLLATE "C" NOT NULL,
    pid bigint NOT NULL,
    slots bigint NOT NULL,
    http_slots bigint NOT NULL DEFAULT 0,
    types json NOT NULL DEFAULT '[]',
    resources json,
    version text COLLATE "C" NOT NULL DEFAULT '',
    started_at timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    stopping_at timestamptz,
    stopped_at timestamptz,
    memory_bytes bigint,
    cpu_share double precision
);
CREATE INDEX workers_live ON workers (expires_at) WHERE stopped_at IS NULL;

-- Events of one name that one commit wrote for many jobs share a row: count says how many they are, batch holds the
-- columns in which they differ ({"job_id": [...], ...}), and id is that of the last of them.
CREATE TABLE events (
    id bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY (START WITH 1000 INCREMENT BY 1000),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    name text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    job_id text COLLATE "C",
    run_id text COLLATE "C",
    worker_id text COLLATE "C",
    group_id text COLLATE "C",
    schedule_id text COLLATE "C",
    data json,
    count bigint NOT NULL DEFAULT 1,
    batch json,
    -- The order in which readers can rely on nothing coming in between.
    PRIMARY KEY (xid, id)
);
-- The newest of them, for who looks at the log.
CREATE INDEX events_newest ON events (id);
CREATE INDEX events_job ON events (job_id, id) WHERE job_id IS NOT NULL;
CREATE INDEX events_batches ON events (at) WHERE batch IS NOT NULL;
-- Events that are not part of every job's or schedule's life can be found by their name.
CREATE INDEX events_rare ON events (name, id) WHERE name NOT IN ('job.queued', 'job.claimed', 'run.ended',
    'job.continued', 'retry.created', 'schedule.fired', 'schedule.planned', 'reservation.requested',
    'reservation.granted', 'reservation.released');

-- One row for each label of a job, written name=value.
CREATE TABLE job_labels (
    label text COLLATE "C" NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (label, job_id)
);

CREATE TABLE api_keys (
    id text COLLATE "C" PRIMARY KEY NOT NULL,
    name text COLLATE "C" NOT NULL,
    prefix text COLLATE "C" NOT NULL,
    hash text COLLATE "C" NOT NULL UNIQUE,
    scope text COLLATE "C" NOT NULL CHECK (scope IN ('read', 'write', 'admin')),
    created_at timestamptz NOT NULL,
    last_used_at timestamptz,
    revoked_at timestamptz,
    expires_at timestamptz
);

CREATE TABLE job_types (
    name text COLLATE "C" PRIMARY KEY NOT NULL,
    schema json NOT NULL DEFAULT '{}',
    defaults json NOT NULL DEFAULT '{}',
    aliases json NOT NULL DEFAULT '[]',
    description text COLLATE "C",
    announced_at timestamptz NOT NULL
);

CREATE TABLE queue_pauses (
    resource text COLLATE "C" PRIMARY KEY NOT NULL,
    paused_at timestamptz NOT NULL,
    paused_by text COLLATE "C",
    reason text COLLATE "C"
);

-- What programs declare (origin settings) and what operators set (origin operator, which wins). meta.limits names the
-- state of these rows: whoever changes one by hand must change that value, too.
CREATE TABLE limits (
    name text COLLATE "C" NOT NULL,
    origin text COLLATE "C" NOT NULL CHECK (origin IN ('settings', 'operator')),
    source text COLLATE "C" NOT NULL CHECK (source IN ('concurrency', 'limits', 'operator')),
    resource text COLLATE "C",
    type text COLLATE "C",
    slots bigint CHECK (slots >= 0),
    rate_count bigint CHECK (rate_count > 0),
    rate_per_s double precision CHECK (rate_per_s > 0),
    rate_burst bigint CHECK (rate_burst >= 0),
    per_partition boolean NOT NULL DEFAULT false,
    fair boolean NOT NULL DEFAULT false,
    changed_at timestamptz NOT NULL,
    changed_by text COLLATE "C",
    weights json,
    version bigint NOT NULL DEFAULT 1,
    PRIMARY KEY (name, origin),
    CHECK ((rate_count IS NULL) = (rate_per_s IS NULL))
);

-- weights: an object of partitions and how many starts each has in its turn.

-- due: when the next start under this limit would be, if all were evenly spaced; seconds since 1970.
CREATE TABLE rates (
    key text COLLATE "C" NOT NULL,
    partition text COLLATE "C" NOT NULL DEFAULT '',
    due double precision NOT NULL,
    PRIMARY KEY (key, partition)
) WITH (fillfactor = 50);

-- Before when nothing of the partition starts under this limit, because who was called asked for that; seconds since
-- 1970. type: only jobs of this type; empty for all that the limit covers.
CREATE TABLE throttles (
    key text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    partition text COLLATE "C" NOT NULL,
    until double precision NOT NULL,
    PRIMARY KEY (key, type, partition)
);

-- Limits whose slots all go to direct requests while jobs wait.
CREATE TABLE starvations (
    key text COLLATE "C" PRIMARY KEY NOT NULL,
    limit_name text COLLATE "C" NOT NULL,
    resource text COLLATE "C" NOT NULL,
    since timestamptz NOT NULL
);

-- How many direct requests in a row got a slot of a limit; kept only with direct_burst.
CREATE TABLE direct_streaks (
    key text COLLATE "C" PRIMARY KEY NOT NULL,
    length integer NOT NULL
);

-- The partition that was served last under a fair limit.
CREATE TABLE turns (
    key text COLLATE "C" PRIMARY KEY NOT NULL,
    partition text COLLATE "C" NOT NULL,
    taken integer NOT NULL DEFAULT 0
);

-- taken: how many starts the partition has had in its turn.

-- How often a worker went on with the affinity that it ran last, and how often it changed to another.
CREATE TABLE affinity_counts (
    resource text COLLATE "C" PRIMARY KEY NOT NULL,
    kept integer NOT NULL,
    switches integer NOT NULL
);

CREATE TABLE progress (
    run_id text COLLATE "C" PRIMARY KEY NOT NULL,
    fraction double precision,
    message text COLLATE "C",
    -- The steps in which its handler is.
    steps json,
    updated_at timestamptz NOT NULL
);

CREATE TABLE run_logs (
    run_id text COLLATE "C" NOT NULL,
    sequence bigint NOT NULL,
    at timestamptz NOT NULL,
    stream text COLLATE "C" NOT NULL,
    text text COLLATE "C" NOT NULL,
    PRIMARY KEY (run_id, sequence)
);

CREATE TABLE artifacts (
    run_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    sha256 text COLLATE "C" NOT NULL,
    path text COLLATE "C",
    data bytea,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (run_id, name)
);

-- The values that the handlers of a chain keep; root_id is the first job of the chain.
CREATE TABLE steps (
    root_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value json NOT NULL,
    size bigint NOT NULL,
    started_at timestamptz NOT NULL,
    duration_s double precision NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    kept_at timestamptz NOT NULL,
    PRIMARY KEY (root_id, name)
);

-- Messages to a chain, numbered by name from 1; they stay until the chain goes.
CREATE TABLE signals (
    root_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    payload json NOT NULL,
    sent_by text COLLATE "C",
    sent_at timestamptz NOT NULL,
    PRIMARY KEY (root_id, name, number)
);

-- What handlers ask people; root_id is the first job of the chain that waits for the answer.
CREATE TABLE questions (
    id text COLLATE "C" PRIMARY KEY NOT NULL,
    root_id text COLLATE "C" NOT NULL,
    question text COLLATE "C" NOT NULL,
    choices json,
    schema json,
    asked_at timestamptz NOT NULL,
    answer json,
    answered_by text COLLATE "C",
    answered_at timestamptz
);
CREATE INDEX questions_open ON questions (asked_at, id) WHERE answered_at IS NULL;
CREATE INDEX questions_chain ON questions (root_id);

-- What must end before a chain's first job may start; job_id is that job. upstream_id is a group, or the first job of a
-- chain. Nothing is counted: a job may start when none of its rows is without met_at.
CREATE TABLE dependencies (
    job_id text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    upstream_id text COLLATE "C" NOT NULL,
    is_group boolean NOT NULL,
    name text COLLATE "C",
    met_at timestamptz,
    outcome text COLLATE "C",
    PRIMARY KEY (job_id, number)
);
CREATE INDEX dependencies_upstream ON dependencies (upstream_id);
CREATE INDEX dependencies_unmet ON dependencies (job_id) WHERE met_at IS NULL;

CREATE TABLE meta (
    key text COLLATE "C" PRIMARY KEY NOT NULL,
    value text COLLATE "C" NOT NULL
);

CREATE SEQUENCE fences;

-- One counter per priority. Sequences, because a counter row would let no two enqueues commit side by side.
DO $$
BEGIN
    FOR priority IN 0..100 LOOP
        EXECUTE format('CREATE SEQUENCE positions_%s INCREMENT BY 100 START WITH 100', priority);
    END LOOP;
END
$$;

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
END
$$;
CREATE FUNCTION refuse_status() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = format('illegal status change: %s -> %s', old.status, new.status),
        ERRCODE = 'check_violation', CONSTRAINT = TG_NAME;
END
$$;

CREATE TRIGGER jobs_params_are_frozen BEFORE UPDATE OF params ON jobs FOR EACH ROW
    WHEN (old.status <> 'QUEUED' AND new.params::text IS DISTINCT FROM old.params::text)
    EXECUTE FUNCTION refuse_change('params cannot change after a job has left the queue');

CREATE TRIGGER jobs_status_is_final BEFORE UPDATE OF status ON jobs FOR EACH ROW
    WHEN ((new.status = 'QUEUED' AND old.status <> 'QUEUED')
       OR (new.status = 'RUNNING' AND old.status NOT IN ('QUEUED', 'RUNNING')))
    EXECUTE FUNCTION refuse_status();

CREATE TRIGGER job_runs_start_is_frozen
    BEFORE UPDATE OF id, job_id, type, resource, template_id, params_snapshot, worker_id, slot, fence, started_at
    ON job_runs FOR EACH ROW
    EXECUTE FUNCTION refuse_change('the columns that a run starts with cannot change');

CREATE TRIGGER job_runs_end_is_written_once
    BEFORE UPDATE OF finished_at, status, exit_code, error, error_kind, artifacts ON job_runs FOR EACH ROW
    WHEN (old.status IS NOT NULL)
    EXECUTE FUNCTION refuse_change('a run that has ended cannot change');

-- Whoever changes a delay or a priority by hand changes what the claim goes by: hold and effective_priority follow.
-- A delay that is over by then is found by the next claim.
CREATE FUNCTION hold_follows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    new.hold := CASE WHEN new.not_before IS NULL THEN 0 ELSE 1 END;
    RETURN new;
END
$$;
CREATE TRIGGER jobs_hold_follows BEFORE UPDATE OF not_before ON jobs FOR EACH ROW
    WHEN (new.status = 'QUEUED' AND new.hold IN (0, 1) AND new.hold = old.hold
      AND new.not_before IS DISTINCT FROM old.not_before)
    EXECUTE FUNCTION hold_follows();

CREATE FUNCTION rank_follows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    new.effective_priority := new.priority;
    RETURN new;
END
$$;
CREATE TRIGGER jobs_rank_follows BEFORE UPDATE OF priority ON jobs FOR EACH ROW
    WHEN (new.status = 'QUEUED' AND new.priority <> old.priority AND new.effective_priority = old.effective_priority)
    EXECUTE FUNCTION rank_follows();

CREATE FUNCTION written_by_hand() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    new.effective_priority := new.priority;
    new.hold := greatest(new.hold, CASE WHEN new.not_before IS NULL THEN 0 ELSE 1 END);
    RETURN new;
END
$$;
-- Whoever copies a whole store brings hold and effective_priority along, and sets holdbeat.copying to on for the
-- transaction; then the row is stored as it is. A row that has ended needs neither column to be right.
CREATE TRIGGER jobs_written_by_hand BEFORE INSERT ON jobs FOR EACH ROW
    WHEN (new.status = 'QUEUED'
      AND (new.effective_priority <> new.priority OR (new.hold = 0 AND new.not_before IS NOT NULL))
      AND current_setting('holdbeat.copying', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION written_by_hand();

-- Whoever writes a plan by hand writes next_run_at alone: wake_at follows.
CREATE FUNCTION wake_follows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    new.wake_at := CASE
        WHEN NOT new.enabled OR new.next_run_at IS NULL THEN NULL
        WHEN new.replan_at < new.next_run_at THEN new.replan_at
        ELSE new.next_run_at END;
    RETURN new;
END
$$;
CREATE TRIGGER schedules_wake_follows BEFORE UPDATE OF next_run_at ON schedules FOR EACH ROW
    WHEN (new.next_run_at IS DISTINCT FROM old.next_run_at AND new.wake_at IS NOT DISTINCT FROM old.wake_at)
    EXECUTE FUNCTION wake_follows();
