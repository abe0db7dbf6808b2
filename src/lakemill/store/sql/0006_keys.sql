-- Who may: tenants, API keys, what was done by whom, and quotas that all processes share.
CREATE TABLE lakemill.tenants (
  tenant     text PRIMARY KEY,
  schemas    text[] NOT NULL,
  requests   double precision CHECK (requests > 0),   -- per second; NULL: no limit
  rows       double precision CHECK (rows > 0),
  bytes      double precision CHECK (bytes > 0),
  queries    int CHECK (queries > 0),                 -- at a time
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE lakemill.tenants IS 'Tenants: the schemas that each sees, and its quotas.';

CREATE TABLE lakemill.keys (
  key_id       text PRIMARY KEY,                      -- public; what stands before the secret
  digest       bytea NOT NULL,                        -- SHA-256 of the secret, which is stored nowhere
  name         text NOT NULL,
  tenant       text REFERENCES lakemill.tenants,      -- NULL: of all tenants
  roles        text[] NOT NULL,
  tables       text[] NOT NULL DEFAULT '{}',          -- patterns; none: all
  requests     double precision CHECK (requests > 0),
  rows         double precision CHECK (rows > 0),
  bytes        double precision CHECK (bytes > 0),
  queries      int CHECK (queries > 0),
  created_by   text NOT NULL,
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at   timestamptz,
  revoked_at   timestamptz,
  last_used_at timestamptz                            -- to the minute
);
COMMENT ON TABLE lakemill.keys IS 'API keys: what each may; of its secret only a digest.';

CREATE TABLE lakemill.audit (
  audit_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  who      text NOT NULL,
  tenant   text,
  action   text NOT NULL,
  about    text,                                      -- the key, tenant or pin in question
  outcome  text NOT NULL CHECK (outcome IN ('done', 'refused', 'failed')),
  code     text,
  trace_id text NOT NULL,
  sql      text,                                      -- of a query or definition, cut to a length, without secrets
  tables   text[] NOT NULL DEFAULT '{}',
  snapshot bigint,
  rows     bigint,
  seconds  double precision
);
COMMENT ON TABLE lakemill.audit IS 'Queries and administrative actions: who, what, when, and how it ended.';
CREATE INDEX audit_at ON lakemill.audit (at);

-- unlogged: they change all the time, and after a crash a full bucket is what a second of waiting would give
CREATE UNLOGGED TABLE lakemill.buckets (
  subject  text NOT NULL,                             -- key:… or tenant:…
  resource text NOT NULL,
  level    double precision NOT NULL,
  at       timestamptz NOT NULL,
  PRIMARY KEY (subject, resource)
);
COMMENT ON TABLE lakemill.buckets IS 'Quotas per second: how full each bucket was, and when.';

CREATE UNLOGGED TABLE lakemill.slots (
  slot_id    uuid PRIMARY KEY,
  subject    text NOT NULL,
  expires_at timestamptz NOT NULL
);
COMMENT ON TABLE lakemill.slots IS 'Queries that run now, of keys and tenants that may run so many at a time.';
CREATE INDEX slots_subject ON lakemill.slots (subject);
