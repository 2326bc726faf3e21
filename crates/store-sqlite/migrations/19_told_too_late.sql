-- What a run was told, and did not record before its end, waits for its next writer.
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
    DELETE FROM inbox WHERE new.frees AND run = new.run AND kind NOT IN ('input', 'settlement', 'signal');
END;
