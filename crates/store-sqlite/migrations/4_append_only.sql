-- Events and errors are put at the end of their tables, whoever they belong to, so that a commit for
-- many runs writes few pages. The events of a run are linked, from `runs.last_event` back by `prev`;
-- an index by run would have a page for each run in every commit.
CREATE TABLE appended (
    id          INTEGER PRIMARY KEY,
    prev        INTEGER,
    run_id      INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    type        TEXT    NOT NULL,
    actor       TEXT    NOT NULL,
    caused_by   INTEGER,
    schema      INTEGER NOT NULL,
    hash        BLOB    NOT NULL,
    data        TEXT    NOT NULL
);
INSERT INTO appended
SELECT row_number() OVER everything,
       CASE lag(run_id) OVER everything WHEN run_id THEN row_number() OVER everything - 1 END,
       run_id, seq, at, type, actor, caused_by, schema, hash, data
FROM events WINDOW everything AS (ORDER BY run_id, seq);
DROP TABLE events;
ALTER TABLE appended RENAME TO events;
ALTER TABLE runs ADD COLUMN last_event INTEGER;
-- What the run may use; it does not change.
ALTER TABLE runs ADD COLUMN terms TEXT;
UPDATE runs SET terms = (
    SELECT json_object('budget', json_extract(data, '$.agent.definition.budget'),
                       'price', json_extract(data, '$.agent.definition.price'))
    FROM events WHERE run_id = runs.id AND seq = 1 AND type = 'run.started');
UPDATE runs SET last_event = newest.id
FROM (SELECT run_id, max(id) AS id FROM events GROUP BY run_id) AS newest
WHERE newest.run_id = runs.id;

-- Lists are for people and scan; what a commit needs is the id, and what an error has been seen as.
CREATE TABLE appended (
    number      INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    session     TEXT    NOT NULL,
    run         TEXT    NOT NULL,
    call_id     TEXT    NOT NULL,
    tool        TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    code        TEXT,
    fingerprint TEXT    NOT NULL,
    occurrences INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    last_at     INTEGER NOT NULL,
    summary     TEXT    NOT NULL,
    raw         TEXT    NOT NULL,
    UNIQUE (fingerprint, session)
);
INSERT INTO appended
SELECT row_number() OVER (ORDER BY id), id, session, run, call_id, tool, reason, code, fingerprint,
       occurrences, at, last_at, summary, raw
FROM errors;
DROP TABLE errors;
ALTER TABLE appended RENAME TO errors;

-- What is asked stands in the event alone, where a change shows.
CREATE TABLE asked (
    id          TEXT    PRIMARY KEY,
    run         TEXT    NOT NULL,
    call_id     TEXT    NOT NULL,
    event       INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO asked
SELECT approvals.id, approvals.run, approvals.call_id, max(events.id)
FROM approvals JOIN runs ON runs.run = approvals.run JOIN events ON events.run_id = runs.id
WHERE type = 'approval.requested' AND json_extract(data, '$.approval_id') = approvals.id
GROUP BY approvals.id;
DROP TABLE approvals;
ALTER TABLE asked RENAME TO approvals;
CREATE INDEX approvals_by_run ON approvals (run);
