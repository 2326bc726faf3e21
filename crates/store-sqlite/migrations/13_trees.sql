-- The run at the head of a run's callers: its claim covers all that are below it. A copy is its own.
ALTER TABLE runs ADD COLUMN root TEXT;
UPDATE runs SET root = json_extract(started.data, '$.root')
FROM events AS started
WHERE started.run_id = runs.id AND started.seq = 1 AND started.type = 'run.started'
    AND json_valid(started.data) AND json_extract(started.data, '$.run') = runs.run
    AND json_extract(started.data, '$.root') <> runs.run;
CREATE INDEX runs_by_root ON runs (root) WHERE root IS NOT NULL;
CREATE TRIGGER events_rooted AFTER INSERT ON events WHEN new.type = 'run.started' BEGIN
    UPDATE runs SET root = json_extract(new.data, '$.root')
    WHERE id = new.run_id AND json_valid(new.data) AND json_extract(new.data, '$.run') = run
        AND json_extract(new.data, '$.root') <> run;
END;

-- The run of its session that a run was dispatched together with, and that began first.
ALTER TABLE runs ADD COLUMN branch_of TEXT;
DROP INDEX runs_roots;
CREATE INDEX runs_roots ON runs (session) WHERE parent IS NULL AND branch_of IS NULL;
CREATE INDEX runs_branches ON runs (session)
WHERE branch_of IS NOT NULL AND state IN ('running', 'waiting_approval', 'parked');
