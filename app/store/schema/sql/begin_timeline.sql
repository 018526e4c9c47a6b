-- Called on each connection before it writes. Begins a new timeline if this server run has none yet, or if the caller knows a
-- revision that the counter has not reached: then the database went back in time.
--
-- The table server_runs is unlogged, so it is empty after a crash, in a promoted standby and in a restored base backup. The
-- first revision of a timeline is the time in microseconds: two restores of one backup get different numbers.
create or replace function begin_timeline(known bigint) returns void language plpgsql as $$
declare
    last bigint;
    first bigint;
    is_known boolean;
begin
    select revision into last from counter where id = 1 for update;
    is_known := exists (select from server_runs where run = server_run());
    if is_known and known <= last then
        return;
    end if;
    first := greatest(greatest(known, last) + 1000000, (extract(epoch from clock_timestamp()) * 1000000)::bigint);
    insert into timelines (began, after) values (first, last);
    -- Within one run nobody can tell from where on its revisions were given out twice: none before is good any more.
    update counter set revision = first, timeline = first, floor = case when is_known then first else floor end where id = 1;
    delete from server_runs;
    insert into server_runs values (server_run());
    perform pg_notify('changes', 'timeline');
end $$
