-- Runs that wait for a worker, and the workers.

-- What makes the agent of a run that agent: another one does not go on with it.
ALTER TABLE backstop.runs ADD COLUMN digest text COLLATE "C";
-- Whose runs are looked at, for owners that have died; and those that are open, which may have no owner.
CREATE INDEX runs_by_owner ON backstop.runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX runs_open ON backstop.runs (id)
    WHERE parent IS NULL AND state IN ('running', 'waiting_approval', 'parked');

-- A run in the queue has no row in `runs` until a worker starts it, and stays here until it is over: its place says
-- how many of its queue are at work.
CREATE TABLE backstop.queue (
    number      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run         text COLLATE "C" NOT NULL UNIQUE,
    queue       text COLLATE "C" NOT NULL,
    agent       text COLLATE "C" NOT NULL,
    session     text COLLATE "C" NOT NULL,
    not_before  bigint NOT NULL,
    queued_at   bigint NOT NULL,
    -- The task and its labels, as JSON.
    task        text NOT NULL,
    -- The process that is at work on it.
    owner       text COLLATE "C",
    -- Why it cannot be started, as JSON.
    refused     text
);
CREATE INDEX queue_by_session ON backstop.queue (session, number);
CREATE INDEX queue_waiting ON backstop.queue (queue, number) WHERE owner IS NULL AND refused IS NULL;
CREATE INDEX queue_by_owner ON backstop.queue (owner) WHERE owner IS NOT NULL;

-- Keys by which a start that is asked for again is known. They are kept as long as the run, and at least a day.
CREATE TABLE backstop.start_keys (
    agent       text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    input       text NOT NULL,
    run         text COLLATE "C" NOT NULL,
    at          bigint NOT NULL,
    PRIMARY KEY (agent, key)
);
CREATE INDEX start_keys_by_age ON backstop.start_keys (at);

-- What a process goes on with: agents by name and digest, with the queues that it takes runs from.
CREATE TABLE backstop.workers (
    process     text COLLATE "C" PRIMARY KEY,
    agents      text[] COLLATE "C" NOT NULL,
    digests     text[] COLLATE "C" NOT NULL,
    queues      text[] COLLATE "C" NOT NULL,
    started_at  bigint NOT NULL
);
