-- Sessions that are being forgotten: no run begins there, and none is reopened or copied from there. What a process that
-- died has marked stands for an hour.
CREATE TABLE backstop.forgetting (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session     text COLLATE "C" NOT NULL,
    at          timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX forgetting_by_session ON backstop.forgetting (session);
-- The open runs of a session, however many it has.
CREATE INDEX runs_at_work ON backstop.runs (session) WHERE state IN ('running', 'waiting_approval', 'parked');
