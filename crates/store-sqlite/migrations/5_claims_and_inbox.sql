-- Who writes to a run: the owner is a process with this database open, which holds a lock on a file of
-- that name beside it; the epoch grows with every claim, and an append under an older one is refused.
ALTER TABLE runs ADD COLUMN owner TEXT;
ALTER TABLE runs ADD COLUMN epoch INTEGER NOT NULL DEFAULT 1;

-- The last run of a session is its open one, if any is.
DROP INDEX runs_open;
CREATE INDEX runs_roots ON runs (session) WHERE parent IS NULL;

-- What comes to a run from outside, until the append that records it takes the row. An approval is
-- decided once.
CREATE TABLE inbox (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    run      TEXT    NOT NULL,
    kind     TEXT    NOT NULL,
    approval TEXT    UNIQUE,
    data     TEXT    NOT NULL,
    sender   TEXT    NOT NULL,
    at       INTEGER NOT NULL
);
CREATE INDEX inbox_by_run ON inbox (run);
INSERT INTO inbox (run, kind, approval, data, sender, at)
SELECT approvals.run, 'decision', approval_id,
       json_object('approved', json(CASE approved WHEN 0 THEN 'false' ELSE 'true' END), 'text', reason),
       decided_by, 0
FROM decisions JOIN approvals ON approvals.id = approval_id;
DROP TABLE decisions;
