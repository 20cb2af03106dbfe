-- The effect, once: one statement, which either marks the slot as done and pays, or
-- does neither. No row: the slot is done already, or this attempt's fence is too old.
WITH mine AS (
    INSERT INTO cronce_effects (slot_id, fence, done) VALUES (:'slot', :fence, true)
    ON CONFLICT (slot_id) DO UPDATE SET fence = EXCLUDED.fence, done = true
        WHERE NOT cronce_effects.done AND cronce_effects.fence <= EXCLUDED.fence
    RETURNING slot_id
)
UPDATE accounts SET balance = balance + 10
FROM mine WHERE accounts.name = 'ada'
RETURNING mine.slot_id;
