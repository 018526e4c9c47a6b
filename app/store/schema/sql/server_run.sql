-- Names this run of this server, with these very tables: another one after a restart, a promotion, or a restored dump.
create or replace function server_run() returns text language sql stable as $$
    select concat_ws('/', extract(epoch from pg_postmaster_start_time()), d.oid, 'counter'::regclass::oid)
    from pg_database d where d.datname = current_database()
$$
