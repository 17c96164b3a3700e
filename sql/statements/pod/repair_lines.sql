-- Repairs what claims remember about lanes and limits. Each line or place that it returns is the trace of a bug, or of
-- a change by hand.
-- Calls reactor.repair_lines (schema/functions/repair_lines.sql).
select announced, freed from reactor.repair_lines()
