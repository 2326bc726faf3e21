-- Values by scope and key. The number of a row is its version: it is never given twice, also not after the row went.
CREATE TABLE state (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    at INTEGER NOT NULL,
    expires_at INTEGER,
    value TEXT NOT NULL,
    UNIQUE (scope, key)
);
CREATE INDEX state_expires ON state (expires_at) WHERE expires_at IS NOT NULL;
-- The words of each value; it keeps no text.
CREATE VIRTUAL TABLE state_words USING fts5
    (place, words, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0');
CREATE TRIGGER state_gone AFTER DELETE ON state BEGIN
    DELETE FROM state_words WHERE rowid = old.number;
END;
