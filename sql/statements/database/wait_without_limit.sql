-- Until this transaction ends, it and its waits for locks have no limit: a user or server may have a default for short
-- statements. (transaction_timeout: PostgreSQL 17 and newer.)
select set_config(s.name, '0', true) from pg_settings s
where s.name in ('lock_timeout', 'statement_timeout', 'transaction_timeout')
