-- Calls that a person settled.
CREATE TABLE settled (
    run         TEXT    NOT NULL,
    call        TEXT    NOT NULL,
    PRIMARY KEY (run, call)
) WITHOUT ROWID;
INSERT OR IGNORE INTO settled
SELECT runs.run, json_extract(data, '$.call_id') AS call
FROM events JOIN runs ON runs.id = events.run_id
WHERE type = 'tool.resolved' AND json_valid(data) AND call IS NOT NULL;
CREATE TRIGGER events_settled AFTER INSERT ON events WHEN new.type = 'tool.resolved' BEGIN
    INSERT INTO settled
    SELECT runs.run, json_extract(new.data, '$.call_id') FROM runs
    WHERE runs.id = new.run_id AND json_valid(new.data) AND json_extract(new.data, '$.call_id') IS NOT NULL
    ON CONFLICT DO NOTHING;
END;

-- The events that hold failure messages of behaviours, by the run whose event was delivered: they are erased with it.
CREATE TABLE delivery_failures (
    run         TEXT    NOT NULL,
    event       INTEGER NOT NULL,
    PRIMARY KEY (run, event)
) WITHOUT ROWID;
CREATE INDEX delivery_failures_by_event ON delivery_failures (event);
INSERT OR IGNORE INTO delivery_failures
SELECT json_extract(data, '$.run') AS about, id FROM events
WHERE type = 'behavior.failed' AND json_valid(data) AND about IS NOT NULL;
CREATE TRIGGER events_undelivered AFTER INSERT ON events WHEN new.type = 'behavior.failed' BEGIN
    INSERT INTO delivery_failures
    SELECT json_extract(new.data, '$.run'), new.id
    WHERE json_valid(new.data) AND json_extract(new.data, '$.run') IS NOT NULL
    ON CONFLICT DO NOTHING;
END;

-- What the key of a log seals beside the record: the row of a run, and each erasure of an event.
ALTER TABLE runs ADD COLUMN seal BLOB;
CREATE TABLE erasures (
    run_id      INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    seal        BLOB    NOT NULL,
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;

-- The texts of calls that are made once move to the scope of the run that made the call, and are removed with it. Those
-- of a run that was removed are removed here; where there was never a run, the runs are in another store.
CREATE TEMP TABLE once_texts AS
SELECT number, 'run:' || json_extract(value, '$.run') AS scope FROM state
WHERE scope = 'global' AND key >= 'once/' AND key < 'once0' AND json_valid(value)
    AND (json_type(value, '$.output') <> 'null' OR json_type(value, '$.text') <> 'null'
        OR json_type(value, '$.arguments') <> 'null')
    AND json_extract(value, '$.run') IS NOT NULL;
INSERT INTO state (scope, key, at, expires_at, value)
SELECT once_texts.scope, key, at, expires_at, value FROM once_texts JOIN state ON state.number = once_texts.number
WHERE json_extract(value, '$.run') IN (SELECT run FROM runs)
    OR NOT EXISTS (SELECT 1 FROM runs UNION ALL SELECT 1 FROM events UNION ALL SELECT 1 FROM removed
        UNION ALL SELECT 1 FROM tombstones)
ON CONFLICT DO NOTHING;
UPDATE state SET value = json_object('run', json_extract(value, '$.run'),
    'call_id', json_extract(value, '$.call_id'), 'state', json_extract(value, '$.state'))
WHERE number IN (SELECT number FROM once_texts);
DELETE FROM state_words WHERE rowid IN (SELECT number FROM once_texts);
DROP TABLE once_texts;
