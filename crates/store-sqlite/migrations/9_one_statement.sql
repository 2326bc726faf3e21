-- An append is one statement: rows of this view, whose last row for a run has the run's summary. It takes
-- itself back if a run does not end just before it, under its epoch. A run that is over is free, and has
-- neither approvals nor an inbox.
CREATE VIEW appends AS
SELECT NULL AS run, NULL AS before, NULL AS epoch, NULL AS seq, NULL AS at, NULL AS type, NULL AS actor,
       NULL AS caused_by, NULL AS schema, NULL AS hash, NULL AS data, NULL AS salt, NULL AS erased,
       NULL AS summary, NULL AS session, NULL AS state, NULL AS started_at, NULL AS frees;
CREATE TRIGGER appends_written INSTEAD OF INSERT ON appends WHEN new.run IS NOT NULL BEGIN
    SELECT RAISE(ABORT, 'the run does not end before the append')
    WHERE NOT EXISTS
        (SELECT 1 FROM runs WHERE run = new.run AND last_seq = new.before AND epoch = new.epoch);
    INSERT INTO events (prev, run_id, seq, at, type, actor, caused_by, schema, hash, data, salt, erased)
    SELECT CASE new.seq WHEN new.before + 1 THEN runs.last_event ELSE (SELECT max(id) FROM events) END,
           runs.id, new.seq, new.at, new.type, new.actor, new.caused_by, new.schema, new.hash, new.data,
           new.salt, new.erased
    FROM runs WHERE runs.run = new.run;
    -- An index knows which runs are open; most appends leave it alone.
    UPDATE runs SET last_seq = new.seq, head = new.hash, summary = new.summary,
        last_event = (SELECT max(id) FROM events),
        owner = CASE WHEN new.frees THEN NULL ELSE owner END
    WHERE new.summary IS NOT NULL AND run = new.run AND session = new.session AND state = new.state;
    UPDATE runs SET last_seq = new.seq, head = new.hash, summary = new.summary,
        last_event = (SELECT max(id) FROM events), session = new.session, state = new.state,
        started_at = new.started_at, owner = CASE WHEN new.frees THEN NULL ELSE owner END
    WHERE new.summary IS NOT NULL AND run = new.run AND last_seq = new.before;
    DELETE FROM approvals WHERE new.frees AND run = new.run;
    DELETE FROM inbox WHERE new.frees AND run = new.run;
END;
