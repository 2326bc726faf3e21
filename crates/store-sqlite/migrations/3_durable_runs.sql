-- What a session needs to know of its runs, and the questions that people can decide from anywhere.
ALTER TABLE runs ADD COLUMN state TEXT NOT NULL DEFAULT 'finished';
ALTER TABLE runs ADD COLUMN parent TEXT;
UPDATE runs SET state = json_extract(summary, '$.state');
CREATE INDEX runs_open ON runs (session) WHERE state IN ('running', 'waiting_approval');

CREATE TABLE approvals (
    id           TEXT    PRIMARY KEY,
    run          TEXT    NOT NULL,
    call_id      TEXT    NOT NULL,
    tool         TEXT    NOT NULL,
    arguments    TEXT    NOT NULL,
    requested_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX approvals_by_run ON approvals (run);

CREATE TABLE decisions (
    approval_id TEXT    PRIMARY KEY,
    approved    INTEGER NOT NULL,
    decided_by  TEXT    NOT NULL,
    reason      TEXT
) WITHOUT ROWID;
