-- Lists by session and tool choose in the index; those of a run choose and sort by what its references
-- say of the errors. A number is missing where there is no error: it is a result, was taken away, or is
-- not here yet.
DROP INDEX errors_by_session;
CREATE INDEX errors_by_session ON errors (session, at, number, tool);

DROP TRIGGER errors_added;
DROP TRIGGER errors_taken;
DROP TRIGGER results_added;
DROP TRIGGER events_stored;
ALTER TABLE refers ADD COLUMN number INTEGER;
ALTER TABLE refers ADD COLUMN at INTEGER;
ALTER TABLE refers ADD COLUMN session TEXT;
ALTER TABLE refers ADD COLUMN tool TEXT;
UPDATE refers SET (number, at, session, tool) =
    (SELECT number, at, session, tool FROM errors WHERE errors.id = refers.id);

CREATE TRIGGER errors_added AFTER INSERT ON errors BEGIN
    INSERT INTO error_stats
    VALUES (new.tool, new.session, new.reason, coalesce(new.code, ''), 1, new.occurrences,
            new.chars_kept * new.occurrences, new.bytes)
    ON CONFLICT DO UPDATE SET errors = errors + 1,
        occurrences = occurrences + excluded.occurrences,
        chars_kept = chars_kept + excluded.chars_kept, bytes = bytes + excluded.bytes;
    UPDATE refers SET number = new.number, at = new.at, session = new.session, tool = new.tool
    WHERE id = new.id;
    INSERT INTO refers (run, id, number, at, session, tool)
    VALUES (new.run, new.id, new.number, new.at, new.session, new.tool) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER errors_taken AFTER DELETE ON errors BEGIN
    UPDATE error_stats SET errors = errors - 1, occurrences = occurrences - old.occurrences,
        chars_kept = chars_kept - old.chars_kept * old.occurrences, bytes = bytes - old.bytes
    WHERE tool = old.tool AND session = old.session AND reason = old.reason
        AND code = coalesce(old.code, '');
    DELETE FROM error_stats
    WHERE tool = old.tool AND session = old.session AND reason = old.reason
        AND code = coalesce(old.code, '') AND errors = 0;
    -- Its number may be another error's one day.
    UPDATE refers SET number = NULL WHERE id = old.id;
END;
CREATE TRIGGER results_added AFTER INSERT ON results BEGIN
    INSERT INTO refers (run, id) VALUES (new.run, new.id) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER events_stored AFTER INSERT ON events
WHEN new.type IN ('error.stored', 'result.stored') BEGIN
    INSERT INTO refers (run, id, number, at, session, tool)
    SELECT named.run, named.id, errors.number, errors.at, errors.session, errors.tool
    FROM (SELECT runs.run AS run, coalesce(json_extract(new.data, '$.error_id'),
                                           json_extract(new.data, '$.result_id')) AS id
          FROM runs WHERE runs.id = new.run_id AND json_valid(new.data)) AS named
    LEFT JOIN errors ON errors.id = named.id
    WHERE named.id IS NOT NULL ON CONFLICT DO NOTHING;
END;
