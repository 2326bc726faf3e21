-- Everything stands in a schema of its own, so that a database can be shared with an application.
-- Texts that others give are compared by their bytes, as in every other store: COLLATE "C".

-- One row. What is added to the ids of transactions: a database that was restored elsewhere counts on. And the last
-- place of an event that was taken away: a cursor may stand behind it.
CREATE TABLE backstop.meta (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    tx_offset  bigint NOT NULL DEFAULT 0,
    removed_until bigint NOT NULL DEFAULT 0
);
INSERT INTO backstop.meta DEFAULT VALUES;

-- The head of each run. An append updates one row; most change no column that an index has.
CREATE TABLE backstop.runs (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run         text COLLATE "C" NOT NULL UNIQUE,
    session     text COLLATE "C" NOT NULL,
    started_at  bigint NOT NULL,
    ended_at    bigint,
    last_seq    bigint NOT NULL,
    head        bytea  NOT NULL,
    summary     text   NOT NULL,
    state       text   NOT NULL,
    reason      text COLLATE "C",
    agent       text COLLATE "C" NOT NULL,
    -- The run that dispatched it, and the one at the head of its callers, whose claim covers it.
    parent      text COLLATE "C",
    root        text COLLATE "C",
    -- The first of the runs that it was dispatched together with.
    branch_of   text COLLATE "C",
    -- The run that it follows in its session; and the one that its first event names, which a copy has too.
    follows     text COLLATE "C",
    earlier     text COLLATE "C",
    terms       text,
    labels      text,
    -- Who writes to it, and under which epoch.
    owner       text COLLATE "C",
    epoch       bigint NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX runs_by_session ON backstop.runs (session, started_at);
CREATE INDEX runs_by_start ON backstop.runs (started_at, id);
CREATE INDEX runs_by_agent ON backstop.runs (agent, started_at);
CREATE INDEX runs_by_state ON backstop.runs (state, started_at);
CREATE INDEX runs_by_reason ON backstop.runs (reason, started_at) WHERE reason IS NOT NULL;
CREATE INDEX runs_by_root ON backstop.runs (root) WHERE root IS NOT NULL;
CREATE INDEX runs_by_earlier ON backstop.runs (earlier) WHERE earlier IS NOT NULL;
CREATE INDEX runs_roots ON backstop.runs (session, id) WHERE parent IS NULL AND branch_of IS NULL;
CREATE INDEX runs_branches ON backstop.runs (session)
    WHERE branch_of IS NOT NULL AND state IN ('running', 'waiting_approval', 'parked');

-- `place` is the id of the transaction that wrote the event and a number inside of it. A reader looks only at
-- transactions before the oldest open one that appends, so that nothing appears behind it later.
CREATE TABLE backstop.events (
    run_id      bigint NOT NULL,
    seq         bigint NOT NULL,
    place       bigint NOT NULL,
    at          bigint NOT NULL,
    type        text   NOT NULL,
    actor       text   NOT NULL,
    caused_by   bigint,
    schema      bigint NOT NULL,
    hash        bytea  NOT NULL,
    data        text   NOT NULL,
    -- What is hashed before the payload; of an erased one, the digest of both is left.
    salt        bytea,
    erased      bytea,
    PRIMARY KEY (run_id, seq)
);
CREATE UNIQUE INDEX events_by_place ON backstop.events (place);

-- What events say that is looked up by something else than their run.
CREATE TABLE backstop.attempts (
    run_id      bigint NOT NULL,
    seq         bigint NOT NULL,
    at          bigint NOT NULL,
    provider    text   NOT NULL,
    code        text COLLATE "C" NOT NULL,
    PRIMARY KEY (run_id, seq)
);
CREATE INDEX attempts_by_time ON backstop.attempts (at);
-- `call` is the digest of the call's id: models give ids of any length.
CREATE TABLE backstop.settled (
    run         text COLLATE "C" NOT NULL,
    call        bytea NOT NULL,
    PRIMARY KEY (run, call)
);
CREATE TABLE backstop.labels (
    key         text COLLATE "C" NOT NULL,
    value       text COLLATE "C" NOT NULL,
    started_at  bigint NOT NULL,
    run_id      bigint NOT NULL,
    PRIMARY KEY (key, value, started_at, run_id)
);
CREATE INDEX labels_by_run ON backstop.labels (run_id);
-- From which sessions a session has copies.
CREATE TABLE backstop.lineage (
    session     text COLLATE "C" NOT NULL,
    ancestor    text COLLATE "C" NOT NULL,
    PRIMARY KEY (session, ancestor)
);
CREATE INDEX lineage_by_ancestor ON backstop.lineage (ancestor);

-- Open approvals. What is asked stands in the event alone, where a change shows.
CREATE TABLE backstop.approvals (
    id          text COLLATE "C" PRIMARY KEY,
    run         text COLLATE "C" NOT NULL,
    call_id     text COLLATE "C" NOT NULL,
    run_id      bigint NOT NULL,
    seq         bigint NOT NULL
);
CREATE INDEX approvals_by_run ON backstop.approvals (run);
-- Those that were not decided in time: what is decided about them comes too late.
CREATE TABLE backstop.expired_approvals (
    id          text COLLATE "C" PRIMARY KEY,
    run         text COLLATE "C" NOT NULL
);
CREATE INDEX expired_approvals_by_run ON backstop.expired_approvals (run);
-- What comes to a run from outside, until the append that records it takes the row.
CREATE TABLE backstop.inbox (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run         text COLLATE "C" NOT NULL,
    kind        text NOT NULL,
    approval    text COLLATE "C" UNIQUE,
    call_id     text COLLATE "C",
    data        text NOT NULL,
    sender      text NOT NULL,
    at          bigint NOT NULL
);
CREATE INDEX inbox_by_run ON backstop.inbox (run, id);

-- Where subscriptions stand. They move in the appends to their segments, which are rows of `runs` of no session.
CREATE TABLE backstop.subscriptions (
    name        text COLLATE "C" PRIMARY KEY,
    pattern     text   NOT NULL,
    segment     bigint NOT NULL,
    cursor      text   NOT NULL
);
CREATE TABLE backstop.positions (
    subscription text COLLATE "C" NOT NULL,
    run         text COLLATE "C" NOT NULL,
    seq         bigint NOT NULL,
    PRIMARY KEY (subscription, run)
);

-- Sizes stand in columns before the texts, so that pruning and counting read no text.
CREATE TABLE backstop.errors (
    number      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id          text COLLATE "C" NOT NULL UNIQUE,
    session     text COLLATE "C" NOT NULL,
    run         text COLLATE "C" NOT NULL,
    call_id     text NOT NULL,
    tool        text COLLATE "C" NOT NULL,
    reason      text COLLATE "C" NOT NULL,
    code        text COLLATE "C",
    fingerprint text COLLATE "C" NOT NULL,
    occurrences bigint NOT NULL,
    at          bigint NOT NULL,
    last_at     bigint NOT NULL,
    bytes       bigint NOT NULL,
    chars_kept  bigint NOT NULL,
    summary     text NOT NULL,
    raw         text NOT NULL,
    UNIQUE (session, fingerprint)
);
CREATE INDEX errors_by_time ON backstop.errors (at, number);
CREATE INDEX errors_by_session ON backstop.errors (session, at, number);
CREATE INDEX errors_by_tool ON backstop.errors (tool, at, number);
CREATE INDEX errors_by_age ON backstop.errors (last_at, number);
-- What is counted of all errors is read from here, without their rows.
CREATE INDEX errors_counted ON backstop.errors (tool, session, reason, code) INCLUDE (occurrences, chars_kept);

CREATE TABLE backstop.results (
    number      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id          text COLLATE "C" NOT NULL UNIQUE,
    session     text COLLATE "C" NOT NULL,
    run         text COLLATE "C" NOT NULL,
    call_id     text NOT NULL,
    tool        text COLLATE "C" NOT NULL,
    at          bigint NOT NULL,
    bytes       bigint NOT NULL,
    body        text NOT NULL
);
CREATE INDEX results_by_time ON backstop.results (at, number);
CREATE INDEX results_by_session ON backstop.results (session, at, number);

-- The ids of what was taken away, which answer "expired".
CREATE TABLE backstop.expired (
    id          text COLLATE "C" PRIMARY KEY,
    session     text COLLATE "C" NOT NULL
);
CREATE INDEX expired_by_session ON backstop.expired (session);
-- Which runs refer to which errors and results.
CREATE TABLE backstop.refers (
    run         text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    PRIMARY KEY (run, id)
);
CREATE INDEX refers_by_id ON backstop.refers (id);

-- Values by scope and key. The number of a row is its version: it is never given twice, also not after the
-- row went.
CREATE SEQUENCE backstop.state_versions;
CREATE TABLE backstop.state (
    scope       text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    version     bigint NOT NULL,
    at          bigint NOT NULL,
    expires_at  bigint,
    value       text   NOT NULL,
    words       text[] COLLATE "C" NOT NULL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX state_expires ON backstop.state (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX state_words ON backstop.state USING gin (words);

-- Runs that were taken away whose events still are to be.
CREATE TABLE backstop.removed (
    run_id      bigint PRIMARY KEY,
    run         text COLLATE "C" NOT NULL
);
-- Runs that were forgotten on request.
CREATE TABLE backstop.tombstones (
    run         text COLLATE "C" PRIMARY KEY,
    head        bytea  NOT NULL,
    at          bigint NOT NULL,
    forgotten_by text  NOT NULL
);

-- The processes that write to runs. One lives while its lease has not ended, by the clock of this database,
-- and, where the server can tell, while it holds the lock of this number.
CREATE TABLE backstop.processes (
    id          text COLLATE "C" PRIMARY KEY,
    lock        bigint,
    lease_until timestamptz NOT NULL
);
