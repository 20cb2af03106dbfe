-- An attempt begins: from here on a smaller fence is refused. No row: the slot
-- is done, or a later attempt has begun.
INSERT INTO cronce_effects (slot_id, fence, done) VALUES (:'slot', :fence, false)
ON CONFLICT (slot_id) DO UPDATE SET fence = EXCLUDED.fence
    WHERE NOT cronce_effects.done AND cronce_effects.fence <= EXCLUDED.fence
RETURNING slot_id;
