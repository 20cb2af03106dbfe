-- What each slot has done here. One row a slot; keep them as long as the ledger keeps
-- its records (retention, 7 days by default).
CREATE TABLE IF NOT EXISTS cronce_effects (
    slot_id text    PRIMARY KEY,
    fence   bigint  NOT NULL, -- the largest that has begun or acted
    done    boolean NOT NULL
);

CREATE TABLE IF NOT EXISTS accounts (
    name    text   PRIMARY KEY,
    balance bigint NOT NULL
);
INSERT INTO accounts VALUES ('ada', 0) ON CONFLICT DO NOTHING;
