-- Runs are listed by agent, state and reason. The agent is set when a run begins; state and reason change
-- together, which most appends leave alone.
ALTER TABLE runs ADD COLUMN agent TEXT;
ALTER TABLE runs ADD COLUMN reason TEXT;
UPDATE runs SET agent = json_extract(summary, '$.agent'), reason = json_extract(summary, '$.reason')
WHERE json_valid(summary);
CREATE INDEX runs_by_agent ON runs (agent, started_at);
CREATE INDEX runs_by_state ON runs (state, started_at);
CREATE INDEX runs_by_reason ON runs (reason, started_at) WHERE reason IS NOT NULL;
-- Attempts at models that failed are few among events.
CREATE INDEX events_failed ON events (at)
WHERE type = 'model.attempted' AND CASE WHEN json_valid(data) THEN json_extract(data, '$.code') END IS NOT NULL;

DROP TRIGGER appends_written;
CREATE TRIGGER appends_written INSTEAD OF INSERT ON appends WHEN new.run IS NOT NULL BEGIN
    SELECT RAISE(ABORT, 'the run does not end before the append')
    WHERE NOT EXISTS
        (SELECT 1 FROM runs WHERE run = new.run AND last_seq = new.before AND epoch = new.epoch);
    INSERT INTO events (prev, run_id, seq, at, type, actor, caused_by, schema, hash, data, salt, erased)
    SELECT CASE new.seq WHEN new.before + 1 THEN runs.last_event ELSE (SELECT max(id) FROM events) END,
           runs.id, new.seq, new.at, new.type, new.actor, new.caused_by, new.schema, new.hash, new.data,
           new.salt, new.erased
    FROM runs WHERE runs.run = new.run;
    UPDATE runs SET last_seq = new.seq, head = new.hash, summary = new.summary,
        last_event = (SELECT max(id) FROM events),
        owner = CASE WHEN new.frees THEN NULL ELSE owner END
    WHERE new.summary IS NOT NULL AND run = new.run AND session = new.session AND state = new.state;
    UPDATE runs SET last_seq = new.seq, head = new.hash, summary = new.summary,
        last_event = (SELECT max(id) FROM events), session = new.session, state = new.state,
        started_at = new.started_at, reason = json_extract(new.summary, '$.reason'),
        owner = CASE WHEN new.frees THEN NULL ELSE owner END
    WHERE new.summary IS NOT NULL AND run = new.run AND last_seq = new.before;
    DELETE FROM approvals WHERE new.frees AND run = new.run;
    DELETE FROM inbox WHERE new.frees AND run = new.run;
END;
