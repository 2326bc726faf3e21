-- The events that hold failure messages of behaviours, by the run whose event was delivered: they are erased with it.
CREATE TABLE backstop.delivery_failures (
    run         text COLLATE "C" NOT NULL,
    run_id      bigint NOT NULL,
    seq         bigint NOT NULL,
    PRIMARY KEY (run, run_id, seq)
);
CREATE INDEX delivery_failures_by_segment ON backstop.delivery_failures (run_id);
INSERT INTO backstop.delivery_failures
SELECT about, run_id, seq FROM
    (SELECT substring(data from '"run":"((?:[^"\\]|\\.)+)"') AS about, run_id, seq FROM backstop.events
     WHERE type = 'behavior.failed' AND erased IS NULL) AS failures
WHERE about IS NOT NULL ON CONFLICT DO NOTHING;

-- What the key of a log seals beside the record: the row of a run, and each erasure of an event.
ALTER TABLE backstop.runs ADD COLUMN seal bytea;
CREATE TABLE backstop.erasures (
    run_id      bigint NOT NULL,
    seq         bigint NOT NULL,
    seal        bytea  NOT NULL,
    PRIMARY KEY (run_id, seq)
);

-- Keys of starts are kept by their digests. A key with a character that is stored in another form stays.
UPDATE backstop.start_keys SET key = 'sha256:' || encode(sha256(convert_to(key, 'UTF8')), 'hex')
WHERE key NOT LIKE 'sha256:%' AND position(chr(57344) in key) = 0;

-- The texts of calls that are made once move to the scope of the run that made the call, and are removed with it. Those
-- of a run that was removed are removed here; where there was never a run, the runs are in another store. What holds a
-- character that JSON of the server refuses stays where it is.
INSERT INTO backstop.state (scope, key, version, at, expires_at, value, words)
SELECT 'run:' || run, key, nextval('backstop.state_versions'), at, expires_at, value, '{}' FROM
(SELECT key, at, expires_at, value, parts->>'run' AS run, parts->>'call_id' AS call_id, parts->>'state' AS state FROM
    (SELECT *, CASE WHEN position('\u0000' in value) = 0 THEN value::json END AS parts FROM backstop.state
     WHERE scope = 'global' AND key >= 'once/' AND key < 'once0') AS entries
     WHERE coalesce(parts->>'output', parts->>'text', parts->>'arguments') IS NOT NULL) AS once
WHERE run IN (SELECT run FROM backstop.runs)
    OR NOT EXISTS (SELECT 1 FROM backstop.runs UNION ALL SELECT 1 FROM backstop.events
        UNION ALL SELECT 1 FROM backstop.removed UNION ALL SELECT 1 FROM backstop.tombstones
        UNION ALL SELECT 1 FROM backstop.meta WHERE removed_until > 0) ON CONFLICT DO NOTHING;
UPDATE backstop.state AS state SET words = '{}',
    value = json_build_object('run', once.run, 'call_id', once.call_id, 'state', once.state)::text FROM
(SELECT key, at, expires_at, value, parts->>'run' AS run, parts->>'call_id' AS call_id, parts->>'state' AS state FROM
    (SELECT *, CASE WHEN position('\u0000' in value) = 0 THEN value::json END AS parts FROM backstop.state
     WHERE scope = 'global' AND key >= 'once/' AND key < 'once0') AS entries
     WHERE coalesce(parts->>'output', parts->>'text', parts->>'arguments') IS NOT NULL) AS once
WHERE state.scope = 'global' AND state.key = once.key AND once.run IS NOT NULL;
