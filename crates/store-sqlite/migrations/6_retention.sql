-- Sizes stand in columns before the texts, so that pruning and counting read no text. Lists go by an
-- index: those that begin with a session or a tool grow at few places, whatever the store holds.
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
    bytes       INTEGER NOT NULL,
    chars_kept  INTEGER NOT NULL,
    summary     TEXT    NOT NULL,
    raw         TEXT    NOT NULL,
    UNIQUE (fingerprint, session)
);
INSERT INTO appended
SELECT number, id, session, run, call_id, tool, reason, code, fingerprint, occurrences, at, last_at,
       length(CAST(raw AS BLOB)),
       max(0, length(CASE WHEN json_valid(raw) THEN coalesce(json_extract(raw, '$.message'), raw)
                     ELSE raw END) - length(summary)),
       summary, raw
FROM errors;
DROP TABLE errors;
ALTER TABLE appended RENAME TO errors;
CREATE INDEX errors_by_time ON errors (at);
CREATE INDEX errors_by_session ON errors (session, at);
CREATE INDEX errors_by_tool ON errors (tool, at);
CREATE INDEX errors_by_age ON errors (last_at);

-- The counts that `errors stats` shows. No code is ''.
CREATE TABLE error_stats (
    tool        TEXT    NOT NULL,
    session     TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    code        TEXT    NOT NULL,
    errors      INTEGER NOT NULL,
    occurrences INTEGER NOT NULL,
    chars_kept  INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    PRIMARY KEY (tool, session, reason, code)
) WITHOUT ROWID;
INSERT INTO error_stats
SELECT tool, session, reason, coalesce(code, '') AS author, count(*), sum(occurrences),
       sum(chars_kept * occurrences), sum(bytes)
FROM errors GROUP BY tool, session, reason, author;

CREATE TABLE appended (
    number      INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    session     TEXT    NOT NULL,
    run         TEXT    NOT NULL,
    call_id     TEXT    NOT NULL,
    tool        TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    body        TEXT    NOT NULL
);
INSERT INTO appended
SELECT row_number() OVER (ORDER BY id), id, session, run, call_id, tool, at,
       length(CAST(body AS BLOB)), body
FROM results WHERE body IS NOT NULL;

-- The ids of what was taken away, which answer "expired".
CREATE TABLE expired (
    id          TEXT    PRIMARY KEY,
    session     TEXT    NOT NULL
) WITHOUT ROWID;
CREATE INDEX expired_by_session ON expired (session);
INSERT INTO expired SELECT id, session FROM results WHERE body IS NULL;
DROP TABLE results;
ALTER TABLE appended RENAME TO results;
CREATE INDEX results_by_age ON results (at, bytes);
CREATE INDEX results_by_session ON results (session);

-- Which runs refer to which errors and results.
CREATE TABLE refers (
    run         TEXT    NOT NULL,
    id          TEXT    NOT NULL,
    PRIMARY KEY (run, id)
) WITHOUT ROWID;
CREATE INDEX refers_by_id ON refers (id);
INSERT INTO refers SELECT run, id FROM errors;
INSERT INTO refers SELECT run, id FROM results;
INSERT OR IGNORE INTO refers
SELECT runs.run, coalesce(json_extract(data, '$.error_id'), json_extract(data, '$.result_id')) AS named
FROM events JOIN runs ON runs.id = events.run_id
WHERE type IN ('error.stored', 'result.stored') AND json_valid(data) AND named IS NOT NULL;

CREATE TRIGGER errors_added AFTER INSERT ON errors BEGIN
    INSERT INTO error_stats
    VALUES (new.tool, new.session, new.reason, coalesce(new.code, ''), 1, new.occurrences,
            new.chars_kept * new.occurrences, new.bytes)
    ON CONFLICT DO UPDATE SET errors = errors + 1,
        occurrences = occurrences + excluded.occurrences,
        chars_kept = chars_kept + excluded.chars_kept, bytes = bytes + excluded.bytes;
    INSERT INTO refers VALUES (new.run, new.id) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER errors_seen AFTER UPDATE OF occurrences ON errors BEGIN
    UPDATE error_stats SET occurrences = occurrences + new.occurrences - old.occurrences,
        chars_kept = chars_kept + new.chars_kept * (new.occurrences - old.occurrences)
    WHERE tool = new.tool AND session = new.session AND reason = new.reason
        AND code = coalesce(new.code, '');
END;
CREATE TRIGGER errors_taken AFTER DELETE ON errors BEGIN
    UPDATE error_stats SET errors = errors - 1, occurrences = occurrences - old.occurrences,
        chars_kept = chars_kept - old.chars_kept * old.occurrences, bytes = bytes - old.bytes
    WHERE tool = old.tool AND session = old.session AND reason = old.reason
        AND code = coalesce(old.code, '');
    DELETE FROM error_stats
    WHERE tool = old.tool AND session = old.session AND reason = old.reason
        AND code = coalesce(old.code, '') AND errors = 0;
END;
CREATE TRIGGER results_added AFTER INSERT ON results BEGIN
    INSERT INTO refers VALUES (new.run, new.id) ON CONFLICT DO NOTHING;
END;

-- Which run goes on with which, and from which sessions a session has copies: what is kept because
-- something that is kept needs it.
CREATE TABLE follows (
    run         TEXT    PRIMARY KEY,
    earlier     TEXT    NOT NULL
) WITHOUT ROWID;
CREATE INDEX follows_by_earlier ON follows (earlier);
CREATE TABLE lineage (
    session     TEXT    NOT NULL,
    ancestor    TEXT    NOT NULL,
    PRIMARY KEY (session, ancestor)
) WITHOUT ROWID;
CREATE INDEX lineage_by_ancestor ON lineage (ancestor);

INSERT OR IGNORE INTO follows
SELECT runs.run, coalesce(json_extract(data, '$.follows.run'), json_extract(data, '$.follows')) AS before
FROM events JOIN runs ON runs.id = events.run_id
WHERE type = 'run.started' AND json_valid(data) AND before IS NOT NULL;
INSERT OR IGNORE INTO lineage
SELECT runs.session, json_extract(data, '$.session') AS origin
FROM events JOIN runs ON runs.id = events.run_id
WHERE type = 'run.started' AND json_valid(data) AND origin <> runs.session;
INSERT OR IGNORE INTO lineage
SELECT runs.session, parents.session
FROM events JOIN runs ON runs.id = events.run_id
JOIN runs AS parents ON parents.run = json_extract(data, '$.parent')
WHERE type = 'run.forked' AND json_valid(data) AND parents.session <> runs.session;

CREATE TRIGGER events_stored AFTER INSERT ON events
WHEN new.type IN ('error.stored', 'result.stored') BEGIN
    INSERT INTO refers
    SELECT runs.run, coalesce(json_extract(new.data, '$.error_id'), json_extract(new.data, '$.result_id'))
    FROM runs WHERE runs.id = new.run_id AND json_valid(new.data)
    ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER events_started AFTER INSERT ON events WHEN new.type = 'run.started' BEGIN
    INSERT INTO follows
    SELECT runs.run, coalesce(json_extract(new.data, '$.follows.run'), json_extract(new.data, '$.follows'))
    FROM runs WHERE runs.id = new.run_id AND json_valid(new.data)
        AND json_type(new.data, '$.follows') IN ('text', 'object')
    ON CONFLICT DO NOTHING;
    INSERT INTO lineage
    SELECT runs.session, json_extract(new.data, '$.session')
    FROM runs WHERE runs.id = new.run_id AND json_valid(new.data)
        AND json_extract(new.data, '$.session') <> runs.session
    ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER events_forked AFTER INSERT ON events WHEN new.type = 'run.forked' BEGIN
    INSERT INTO lineage
    SELECT runs.session, parents.session
    FROM runs JOIN runs AS parents ON parents.run = json_extract(new.data, '$.parent')
    WHERE runs.id = new.run_id AND json_valid(new.data) AND parents.session <> runs.session
    ON CONFLICT DO NOTHING;
END;

-- Runs that were taken away whose events still are to be: the last one that is left.
CREATE TABLE removed (
    run_id      INTEGER PRIMARY KEY,
    run         TEXT    NOT NULL,
    event       INTEGER
);
-- Runs that were forgotten on request.
CREATE TABLE tombstones (
    run         TEXT    PRIMARY KEY,
    head        BLOB    NOT NULL,
    at          INTEGER NOT NULL,
    forgotten_by TEXT   NOT NULL
) WITHOUT ROWID;
