-- Dynamic tables: what was declared, what each is equal to, who works on it, and what every refresh did.
CREATE TABLE lakemill.dynamic_tables (
  dynamic_id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  schema_name        text NOT NULL,
  table_name         text NOT NULL,
  definition_version int NOT NULL,
  table_id           bigint,                 -- NULL: not published yet
  state              text NOT NULL CHECK (state IN ('PENDING_INIT', 'ACTIVE', 'SUSPENDED', 'SUSPENDED_DUE_TO_ERRORS',
                                                    'UPSTREAM_SUSPENDED', 'UPSTREAM_FAILED', 'STALE')),
  state_reason       text,
  created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
  state_since        timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- when it was left behind for longer than the retention: it holds no snapshots any more, and is STALE, whatever else it
  -- is, until it has been loaded anew; NULL: its frontier holds what its next delta starts from
  stale_since        timestamptz
);
COMMENT ON TABLE lakemill.dynamic_tables IS 'One row per dynamic table: its name, its state, its table in the lake.';
-- as in DuckDB, the case of ASCII letters does not count
CREATE UNIQUE INDEX dynamic_tables_name
  ON lakemill.dynamic_tables (lower(schema_name COLLATE "C"), lower(table_name COLLATE "C"));

CREATE TABLE lakemill.definitions (
  dynamic_id            bigint NOT NULL REFERENCES lakemill.dynamic_tables ON DELETE CASCADE,
  version               int NOT NULL,
  query                 text NOT NULL,       -- as it was written
  target_lag            interval,            -- NULL: DOWNSTREAM
  column_names          text[] NOT NULL,
  refresh_mode          text NOT NULL,
  strict                boolean NOT NULL,
  cardinality_threshold double precision NOT NULL,
  initialize            text NOT NULL,
  scheduler             boolean NOT NULL,
  priority              int NOT NULL,
  spark_profile         text,
  dialect               text NOT NULL,
  partition_by          text[] NOT NULL,
  comment               text,
  resolved_query        text NOT NULL,       -- as it is run: stars and views expanded
  resolved_mode         text NOT NULL CHECK (resolved_mode IN ('INCREMENTAL', 'FULL', 'ADAPTIVE')),
  mode_reason           text NOT NULL,
  clocked               boolean NOT NULL,
  output_names          text[] NOT NULL,
  output_types          text[] NOT NULL,
  declared_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (dynamic_id, version)
);
COMMENT ON TABLE lakemill.definitions IS 'What was declared, every version of it: old contents are explained by old ones.';

CREATE TABLE lakemill.sources (
  dynamic_id   bigint NOT NULL,
  version      int NOT NULL,
  position     int NOT NULL,
  kind         text NOT NULL CHECK (kind IN ('TABLE', 'VIEW', 'DYNAMIC')),
  schema_name  text NOT NULL,                -- as the query spells it
  table_name   text NOT NULL,
  table_id     bigint,                       -- of the table or the view
  supplier_id  bigint REFERENCES lakemill.dynamic_tables ON DELETE SET NULL,
  column_names text[] NOT NULL,              -- those that the query uses
  PRIMARY KEY (dynamic_id, version, position),
  FOREIGN KEY (dynamic_id, version) REFERENCES lakemill.definitions ON DELETE CASCADE,
  CHECK ((kind = 'DYNAMIC') = (table_id IS NULL)),
  CHECK (kind = 'DYNAMIC' OR supplier_id IS NULL)
);
COMMENT ON TABLE lakemill.sources IS 'What each version of a definition reads: tables, views (expanded), dynamic tables.';
CREATE INDEX sources_supplier ON lakemill.sources (supplier_id);
CREATE INDEX sources_table ON lakemill.sources (table_id);

CREATE TABLE lakemill.versions (
  version_id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  dynamic_id         bigint NOT NULL REFERENCES lakemill.dynamic_tables ON DELETE CASCADE,
  commit_snapshot    bigint NOT NULL,
  b_lo               bigint NOT NULL,
  b_hi               bigint NOT NULL,
  b_time             timestamptz NOT NULL,   -- when b_hi was committed
  t                  timestamptz,            -- NULL: the content does not depend on the clock
  definition_version int NOT NULL,
  table_id           bigint NOT NULL,
  added_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
  CHECK (b_lo <= b_hi),
  CHECK (t IS NULL OR b_lo = b_hi)
);
COMMENT ON TABLE lakemill.versions IS 'The content of a commit equals the query at every data snapshot from b_lo to b_hi.';
CREATE INDEX versions_b ON lakemill.versions (dynamic_id, version_id DESC);

CREATE TABLE lakemill.frontiers (
  dynamic_id bigint PRIMARY KEY REFERENCES lakemill.dynamic_tables ON DELETE CASCADE,
  version_id bigint NOT NULL REFERENCES lakemill.versions ON DELETE CASCADE,
  moved_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE lakemill.frontiers IS 'The current version of each dynamic table.';

CREATE TABLE lakemill.frontier_sources (
  dynamic_id      bigint NOT NULL REFERENCES lakemill.frontiers ON DELETE CASCADE,
  table_id        bigint NOT NULL,
  columns_version bigint NOT NULL,
  commit_snapshot bigint NOT NULL,
  row_count       bigint,                    -- NULL: not counted
  state           int,                       -- NULL: a source; else a hidden state of this number
  PRIMARY KEY (dynamic_id, table_id)
);
COMMENT ON TABLE lakemill.frontier_sources IS 'What the current version read of each source: the next delta starts there; and the hidden states that it left.';

CREATE TABLE lakemill.claims (
  dynamic_id bigint PRIMARY KEY REFERENCES lakemill.dynamic_tables ON DELETE CASCADE,
  fence      bigint NOT NULL,                -- only grows: a late worker is known by its older number
  holder     text NOT NULL,
  claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz NOT NULL
);
COMMENT ON TABLE lakemill.claims IS 'Who may work on a dynamic table, until when; one that is over keeps its number.';

CREATE TABLE lakemill.refreshes (
  refresh_id         uuid PRIMARY KEY,
  dynamic_id         bigint NOT NULL,        -- no reference: the history of a dropped table stays
  schema_name        text NOT NULL,
  table_name         text NOT NULL,
  definition_version int NOT NULL,
  trigger            text NOT NULL CHECK (trigger IN ('SCHEDULED', 'MANUAL', 'CREATION')),
  outcome            text NOT NULL CHECK (outcome IN ('EXECUTING', 'SUCCEEDED', 'FAILED', 'CANCELLED', 'SKIPPED',
                                                      'UPSTREAM_FAILED')),
  action             text CHECK (action IN ('INITIALIZE', 'NO_DATA', 'APPEND', 'DELTA', 'MERGE', 'KEYS', 'FULL',
                                            'REINITIALIZE')),
  reason             text,
  remedy             text,
  a                  bigint,
  b                  bigint,
  t                  timestamptz,
  commit_snapshot    bigint,
  holder             text,
  fence              bigint,
  started_at         timestamptz NOT NULL,
  ended_at           timestamptz,
  rows_in            bigint,                 -- NULL, here and below: unknown
  rows_inserted      bigint,
  rows_deleted       bigint,
  rows_recomputed    bigint,
  records_read       bigint,
  bytes_read         bigint,
  bytes_written      bigint,
  spark_jobs         int,
  phases             json NOT NULL DEFAULT '{}',  -- not jsonb: the order of the phases is kept
  error_code         text,
  error_text         text,
  spark_profile      text,                   -- NULL: the session's own settings
  spark_tasks        bigint,
  spark_executors    int,
  spilled_bytes      bigint
);
COMMENT ON TABLE lakemill.refreshes IS 'One row per refresh, from its start on.';
CREATE INDEX refreshes_table ON lakemill.refreshes (dynamic_id, started_at DESC);
CREATE INDEX refreshes_started ON lakemill.refreshes (started_at);
CREATE INDEX refreshes_executing ON lakemill.refreshes (dynamic_id) WHERE outcome = 'EXECUTING';

CREATE TABLE lakemill.refresh_sources (
  refresh_id  uuid NOT NULL REFERENCES lakemill.refreshes ON DELETE CASCADE,
  position    int NOT NULL,
  schema_name text NOT NULL,
  table_name  text NOT NULL,
  table_id    bigint NOT NULL,
  commit_a    bigint,                        -- NULL: read as a whole
  commit_b    bigint NOT NULL,
  rows_in     bigint,
  PRIMARY KEY (refresh_id, position)
);
COMMENT ON TABLE lakemill.refresh_sources IS 'What a refresh read of each source: its delta over (commit_a, commit_b].';

CREATE TABLE lakemill.progress (
  refresh_id uuid PRIMARY KEY REFERENCES lakemill.refreshes ON DELETE CASCADE,
  told       text NOT NULL,
  told_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE lakemill.progress IS 'How far refreshes are that take long; a row goes when its refresh ends.';

-- ---------------------------------------------------------------- for SQL tools
CREATE VIEW lakemill.dynamic_table_list AS
SELECT d.schema_name, d.table_name, CASE WHEN d.stale_since IS NULL THEN d.state ELSE 'STALE' END AS state,
       CASE WHEN d.stale_since IS NULL THEN d.state_reason
            ELSE concat_ws('; ', 'its past is no longer kept, and it will be loaded anew',
                           nullif(d.state, 'ACTIVE'), d.state_reason) END AS state_reason,
       coalesce(d.stale_since, d.state_since) AS state_since,
       CASE WHEN n.target_lag IS NULL THEN 'DOWNSTREAM' ELSE n.target_lag::text END AS target_lag,
       n.refresh_mode, n.resolved_mode, n.mode_reason, n.scheduler, n.priority, n.comment, n.query,
       d.definition_version, d.table_id,
       v.b_hi AS data_snapshot, v.b_time AS data_time, v.t AS clock_time, v.commit_snapshot,
       r.action AS last_action, r.outcome AS last_outcome, r.reason AS last_reason,
       r.started_at AS last_started_at, r.ended_at AS last_ended_at, r.error_code AS last_error_code,
       r.error_text AS last_error_text, d.created_at, p.told AS progress
FROM lakemill.dynamic_tables d
JOIN lakemill.definitions n ON n.dynamic_id = d.dynamic_id AND n.version = d.definition_version
LEFT JOIN lakemill.frontiers f ON f.dynamic_id = d.dynamic_id
LEFT JOIN lakemill.versions v ON v.version_id = f.version_id
LEFT JOIN LATERAL (SELECT * FROM lakemill.refreshes r WHERE r.dynamic_id = d.dynamic_id
                   ORDER BY r.started_at DESC LIMIT 1) r ON true
LEFT JOIN lakemill.progress p ON p.refresh_id = r.refresh_id AND r.outcome = 'EXECUTING';
COMMENT ON VIEW lakemill.dynamic_table_list IS 'Every dynamic table: what was declared, how it stands, its last refresh. Lag, rows and bytes: dynamic_table_status.';
COMMENT ON COLUMN lakemill.dynamic_table_list.schema_name IS 'Schema of the table.';
COMMENT ON COLUMN lakemill.dynamic_table_list.table_name IS 'Name of the table.';
COMMENT ON COLUMN lakemill.dynamic_table_list.state IS 'PENDING_INIT, ACTIVE, SUSPENDED, SUSPENDED_DUE_TO_ERRORS, UPSTREAM_SUSPENDED, UPSTREAM_FAILED or STALE.';
COMMENT ON COLUMN lakemill.dynamic_table_list.state_reason IS 'Why it is in this state, where there is something to say.';
COMMENT ON COLUMN lakemill.dynamic_table_list.state_since IS 'Since when.';
COMMENT ON COLUMN lakemill.dynamic_table_list.target_lag IS 'How far it may fall behind, or DOWNSTREAM.';
COMMENT ON COLUMN lakemill.dynamic_table_list.refresh_mode IS 'The mode that was asked for.';
COMMENT ON COLUMN lakemill.dynamic_table_list.resolved_mode IS 'The mode that it has: INCREMENTAL, FULL or ADAPTIVE.';
COMMENT ON COLUMN lakemill.dynamic_table_list.mode_reason IS 'Why it has this mode.';
COMMENT ON COLUMN lakemill.dynamic_table_list.scheduler IS 'Whether the scheduler refreshes it.';
COMMENT ON COLUMN lakemill.dynamic_table_list.priority IS 'Larger ones go first.';
COMMENT ON COLUMN lakemill.dynamic_table_list.comment IS 'COMMENT of the definition.';
COMMENT ON COLUMN lakemill.dynamic_table_list.query IS 'The query as it was written.';
COMMENT ON COLUMN lakemill.dynamic_table_list.definition_version IS 'Counts from 1, one more for each change of the definition.';
COMMENT ON COLUMN lakemill.dynamic_table_list.table_id IS 'Id of its table in the lake; NULL until the first publish.';
COMMENT ON COLUMN lakemill.dynamic_table_list.data_snapshot IS 'The newest snapshot at which its content equals its query.';
COMMENT ON COLUMN lakemill.dynamic_table_list.data_time IS 'When that snapshot was committed.';
COMMENT ON COLUMN lakemill.dynamic_table_list.clock_time IS 'What now() was in the query; NULL where it does not matter.';
COMMENT ON COLUMN lakemill.dynamic_table_list.commit_snapshot IS 'The snapshot that holds this content.';
COMMENT ON COLUMN lakemill.dynamic_table_list.last_action IS 'What the last refresh did; NULL while that is not decided.';
COMMENT ON COLUMN lakemill.dynamic_table_list.last_outcome IS 'How the last refresh ended, or EXECUTING.';
COMMENT ON COLUMN lakemill.dynamic_table_list.last_reason IS 'Why it did that.';
COMMENT ON COLUMN lakemill.dynamic_table_list.last_started_at IS 'When the last refresh began.';
COMMENT ON COLUMN lakemill.dynamic_table_list.last_ended_at IS 'When it ended.';
COMMENT ON COLUMN lakemill.dynamic_table_list.last_error_code IS 'Code of its error (docs/reference/errors.md).';
COMMENT ON COLUMN lakemill.dynamic_table_list.last_error_text IS 'Its error in words.';
COMMENT ON COLUMN lakemill.dynamic_table_list.created_at IS 'When the table was declared first.';
COMMENT ON COLUMN lakemill.dynamic_table_list.progress IS 'How far the refresh is that runs, where it takes long.';

CREATE VIEW lakemill.dynamic_table_sources AS
SELECT d.schema_name, d.table_name, s.kind AS source_kind,
       coalesce(u.schema_name, s.schema_name) AS source_schema, coalesce(u.table_name, s.table_name) AS source_name,
       coalesce(s.table_id, u.table_id) AS source_table_id, s.column_names AS columns_used,
       f.commit_snapshot AS commit_read, f.row_count AS rows_read
FROM lakemill.dynamic_tables d
JOIN lakemill.sources s ON s.dynamic_id = d.dynamic_id AND s.version = d.definition_version
LEFT JOIN lakemill.dynamic_tables u ON u.dynamic_id = s.supplier_id
LEFT JOIN lakemill.frontier_sources f
  ON f.dynamic_id = d.dynamic_id AND f.table_id = coalesce(s.table_id, u.table_id);
COMMENT ON VIEW lakemill.dynamic_table_sources IS 'What each dynamic table reads, and up to where it has: the edges of the graph.';
COMMENT ON COLUMN lakemill.dynamic_table_sources.schema_name IS 'Schema of the dynamic table.';
COMMENT ON COLUMN lakemill.dynamic_table_sources.table_name IS 'Name of the dynamic table.';
COMMENT ON COLUMN lakemill.dynamic_table_sources.source_kind IS 'TABLE, VIEW or DYNAMIC.';
COMMENT ON COLUMN lakemill.dynamic_table_sources.source_schema IS 'Schema of the source.';
COMMENT ON COLUMN lakemill.dynamic_table_sources.source_name IS 'Name of the source; of a dynamic table its present one.';
COMMENT ON COLUMN lakemill.dynamic_table_sources.source_table_id IS 'Id of the table or view in the lake.';
COMMENT ON COLUMN lakemill.dynamic_table_sources.columns_used IS 'The columns that the query uses.';
COMMENT ON COLUMN lakemill.dynamic_table_sources.commit_read IS 'The commit of the source that the content was computed from.';
COMMENT ON COLUMN lakemill.dynamic_table_sources.rows_read IS 'Its visible rows there; NULL: unknown.';

CREATE VIEW lakemill.dynamic_table_versions AS
SELECT d.schema_name, d.table_name, v.commit_snapshot, v.b_lo, v.b_hi, v.b_time AS data_time, v.t AS clock_time,
       v.definition_version, v.table_id, v.version_id = f.version_id AS current, v.added_at
FROM lakemill.versions v
JOIN lakemill.dynamic_tables d USING (dynamic_id)
LEFT JOIN lakemill.frontiers f USING (dynamic_id);
COMMENT ON VIEW lakemill.dynamic_table_versions IS 'Which commit of a dynamic table is right for which data snapshots.';
COMMENT ON COLUMN lakemill.dynamic_table_versions.schema_name IS 'Schema of the dynamic table.';
COMMENT ON COLUMN lakemill.dynamic_table_versions.table_name IS 'Name of the dynamic table.';
COMMENT ON COLUMN lakemill.dynamic_table_versions.commit_snapshot IS 'The snapshot that holds the content.';
COMMENT ON COLUMN lakemill.dynamic_table_versions.b_lo IS 'The first data snapshot that it is right for.';
COMMENT ON COLUMN lakemill.dynamic_table_versions.b_hi IS 'The last one.';
COMMENT ON COLUMN lakemill.dynamic_table_versions.data_time IS 'When b_hi was committed.';
COMMENT ON COLUMN lakemill.dynamic_table_versions.clock_time IS 'What now() was in the query; NULL where it does not matter.';
COMMENT ON COLUMN lakemill.dynamic_table_versions.definition_version IS 'The version of the definition that it was computed by.';
COMMENT ON COLUMN lakemill.dynamic_table_versions.table_id IS 'Id of the table in the lake that holds it.';
COMMENT ON COLUMN lakemill.dynamic_table_versions.current IS 'Whether it is the newest.';
COMMENT ON COLUMN lakemill.dynamic_table_versions.added_at IS 'When it was added.';

CREATE VIEW lakemill.refresh_history AS
SELECT r.schema_name, r.table_name, r.trigger, r.outcome, r.action, r.reason, r.remedy,
       r.a AS from_snapshot, r.b AS to_snapshot, r.t AS clock_time, r.commit_snapshot, r.started_at, r.ended_at,
       extract(epoch FROM r.ended_at - r.started_at) AS seconds,
       r.rows_in, r.rows_inserted, r.rows_deleted,
       1 - (r.rows_inserted + r.rows_deleted)::double precision / nullif(r.rows_recomputed, 0) AS dedup_ratio,
       r.records_read, r.bytes_read, r.bytes_written, r.spark_jobs, r.phases, r.error_code, r.error_text,
       r.definition_version, r.holder, r.refresh_id,
       (SELECT coalesce(json_agg(json_build_object('schema', s.schema_name, 'table', s.table_name, 'table_id', s.table_id,
                                                   'from_commit', s.commit_a, 'to_commit', s.commit_b, 'rows', s.rows_in)
                                 ORDER BY s.position), '[]')
        FROM lakemill.refresh_sources s WHERE s.refresh_id = r.refresh_id) AS sources,
       r.spark_profile, r.spark_tasks, r.spark_executors, r.spilled_bytes
FROM lakemill.refreshes r;
COMMENT ON VIEW lakemill.refresh_history IS 'Every refresh: what it did, why, and what it cost. NULL where something is unknown.';
COMMENT ON COLUMN lakemill.refresh_history.schema_name IS 'Schema of the dynamic table, as it was then.';
COMMENT ON COLUMN lakemill.refresh_history.table_name IS 'Name of the dynamic table, as it was then.';
COMMENT ON COLUMN lakemill.refresh_history.trigger IS 'SCHEDULED, MANUAL or CREATION.';
COMMENT ON COLUMN lakemill.refresh_history.outcome IS 'EXECUTING, SUCCEEDED, FAILED, CANCELLED, SKIPPED or UPSTREAM_FAILED.';
COMMENT ON COLUMN lakemill.refresh_history.action IS 'INITIALIZE, NO_DATA, APPEND, DELTA, MERGE, KEYS, FULL or REINITIALIZE.';
COMMENT ON COLUMN lakemill.refresh_history.reason IS 'Why this action.';
COMMENT ON COLUMN lakemill.refresh_history.remedy IS 'What would make it cheaper, or work.';
COMMENT ON COLUMN lakemill.refresh_history.from_snapshot IS 'The data snapshot before it; NULL: there was none.';
COMMENT ON COLUMN lakemill.refresh_history.to_snapshot IS 'The data snapshot that it aimed at.';
COMMENT ON COLUMN lakemill.refresh_history.clock_time IS 'What now() was in the query; NULL where it does not matter.';
COMMENT ON COLUMN lakemill.refresh_history.commit_snapshot IS 'The snapshot that holds the content after it; the one before where nothing changed.';
COMMENT ON COLUMN lakemill.refresh_history.started_at IS 'When it began.';
COMMENT ON COLUMN lakemill.refresh_history.ended_at IS 'When it ended.';
COMMENT ON COLUMN lakemill.refresh_history.seconds IS 'How long it took.';
COMMENT ON COLUMN lakemill.refresh_history.rows_in IS 'Changed rows of all sources.';
COMMENT ON COLUMN lakemill.refresh_history.rows_inserted IS 'Rows added to the table.';
COMMENT ON COLUMN lakemill.refresh_history.rows_deleted IS 'Rows removed from the table.';
COMMENT ON COLUMN lakemill.refresh_history.dedup_ratio IS '1 − changed rows / recomputed rows.';
COMMENT ON COLUMN lakemill.refresh_history.records_read IS 'Rows that Spark read from files.';
COMMENT ON COLUMN lakemill.refresh_history.bytes_read IS 'Bytes that Spark read from files.';
COMMENT ON COLUMN lakemill.refresh_history.bytes_written IS 'Bytes of the files that were published.';
COMMENT ON COLUMN lakemill.refresh_history.spark_jobs IS 'Spark jobs that it took.';
COMMENT ON COLUMN lakemill.refresh_history.phases IS 'Seconds by phase, as JSON.';
COMMENT ON COLUMN lakemill.refresh_history.error_code IS 'Code of the error (docs/reference/errors.md).';
COMMENT ON COLUMN lakemill.refresh_history.error_text IS 'The error in words.';
COMMENT ON COLUMN lakemill.refresh_history.definition_version IS 'The version of the definition.';
COMMENT ON COLUMN lakemill.refresh_history.holder IS 'The worker that ran it.';
COMMENT ON COLUMN lakemill.refresh_history.refresh_id IS 'Its id, as in logs and snapshots.';
COMMENT ON COLUMN lakemill.refresh_history.sources IS 'What it read of each source, as JSON: the delta over (from_commit, to_commit], or all of it where from_commit is null.';
COMMENT ON COLUMN lakemill.refresh_history.spark_profile IS 'The profile that Spark had; NULL: settings fitted to what was read.';
COMMENT ON COLUMN lakemill.refresh_history.spark_tasks IS 'Spark tasks that it took.';
COMMENT ON COLUMN lakemill.refresh_history.spark_executors IS 'Executors that did them; 1 where Spark ran in the worker itself.';
COMMENT ON COLUMN lakemill.refresh_history.spilled_bytes IS 'Bytes that did not fit into memory and were put on disk meanwhile.';
