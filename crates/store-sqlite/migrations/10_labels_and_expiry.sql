-- What a run is filed under stands in its row, and once more where it is looked up.
ALTER TABLE runs ADD COLUMN labels TEXT;
CREATE TABLE labels (
    key        TEXT    NOT NULL,
    value      TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    run_id     INTEGER NOT NULL,
    PRIMARY KEY (key, value, started_at, run_id)
) WITHOUT ROWID;
CREATE INDEX labels_by_run ON labels (run_id);
CREATE TRIGGER runs_taken AFTER DELETE ON runs WHEN old.labels IS NOT NULL BEGIN
    DELETE FROM labels WHERE run_id = old.id;
END;
UPDATE runs SET labels = json_extract(started.data, '$.labels')
FROM events AS started
WHERE started.run_id = runs.id AND started.seq = 1 AND started.type = 'run.started'
    AND json_valid(started.data) AND json_extract(started.data, '$.labels') NOT IN ('{}', 'null');
INSERT INTO labels
SELECT each.key, each.value, runs.started_at, runs.id FROM runs, json_each(runs.labels) AS each
WHERE runs.labels IS NOT NULL;

-- The approvals that were not decided in time: what is decided about them comes too late.
CREATE TABLE expired_approvals (
    id  TEXT PRIMARY KEY,
    run TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX expired_approvals_by_run ON expired_approvals (run);
