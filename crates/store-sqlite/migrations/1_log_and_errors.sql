-- Events name their run by a small integer, so that a row costs little more than its payload.
CREATE TABLE runs (
    id          INTEGER PRIMARY KEY,
    run         TEXT    NOT NULL UNIQUE,
    session     TEXT    NOT NULL,
    started_at  INTEGER NOT NULL,
    last_seq    INTEGER NOT NULL,
    head        BLOB    NOT NULL,
    summary     TEXT    NOT NULL
);
CREATE INDEX runs_by_session ON runs (session, started_at);
CREATE INDEX runs_by_start ON runs (started_at);

CREATE TABLE events (
    run_id      INTEGER NOT NULL REFERENCES runs (id),
    seq         INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    type        TEXT    NOT NULL,
    actor       TEXT    NOT NULL,
    caused_by   INTEGER,
    schema      INTEGER NOT NULL,
    data        TEXT    NOT NULL,
    hash        BLOB    NOT NULL,
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;

CREATE TABLE errors (
    id          TEXT    PRIMARY KEY,
    session     TEXT    NOT NULL,
    run         TEXT    NOT NULL,
    call_id     TEXT    NOT NULL,
    tool        TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    code        TEXT,
    summary     TEXT    NOT NULL,
    raw         TEXT    NOT NULL,
    fingerprint TEXT    NOT NULL,
    occurrences INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    last_at     INTEGER NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX errors_by_fingerprint ON errors (session, fingerprint);
CREATE INDEX errors_by_run ON errors (run, at);
CREATE INDEX errors_by_time ON errors (at);
