-- Where subscriptions stand. They move in the appends to their segments, which are rows of `runs` of no session.
CREATE TABLE subscriptions (
    name    TEXT    PRIMARY KEY,
    pattern TEXT    NOT NULL,
    segment INTEGER NOT NULL,
    cursor  TEXT    NOT NULL
) WITHOUT ROWID;
-- The last event that has ended, of each run of which one did that stands behind the cursor.
CREATE TABLE positions (
    subscription TEXT    NOT NULL,
    run          TEXT    NOT NULL,
    seq          INTEGER NOT NULL,
    PRIMARY KEY (subscription, run)
) WITHOUT ROWID;
