-- For the rest of this transaction, which ends a job with many children: each statement may take $1 milliseconds. A
-- process that is killed meanwhile cancels nothing, so the server looks every two seconds whether its client is still
-- there. Otherwise the rows would stay locked, and the release of that process's jobs would wait for them. Of servers,
-- only those on Linux can tell in all versions.
select set_config('statement_timeout', ($1::int)::text, true),
    case when version() like '%linux%' then set_config('client_connection_check_interval', '2s', true) end
