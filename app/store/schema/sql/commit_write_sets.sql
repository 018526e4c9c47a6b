-- The one door. Applies write sets atomically, each whole or not at all, and gives every write its revision.
--
-- Item j of the arrays gets revision previous + j; refused items and guards leave harmless gaps.
-- changes: A create, M modify, D delete, G guard (no write).
-- expected: 0 must not exist; n > 0 must be at revision n; -1 must exist and not be on its way out.
-- sets: which set an item belongs to; null for a guard of all sets: if it is refused, "in_set <> all (bad_sets)" is never true.
create or replace function commit_write_sets(
    sets int[], kinds text[], namespaces text[], names text[], uids text[], changes text[], expected bigint[],
    bodies bytea[], labellings text[], old_labellings text[], owners text[], nodes text[], deletings boolean[], origin text,
    dormants text[] default null, expiries timestamptz[] default null, -- not given by processes of an earlier version
    out previous bigint, out refused int[]
) language plpgsql as $$
declare
    bad_sets int[];
begin
    -- First statement: its row lock is the commit order, and under READ COMMITTED all that follows sees what
    -- was committed before the lock was granted. A check in this same statement would look too early.
    update counter set revision = revision + cardinality(sets) where id = 1
    returning revision - cardinality(sets) into previous;

    select array_agg(i.item::int order by i.item), array_agg(distinct i.in_set) into refused, bad_sets
    from unnest(sets, kinds, namespaces, names, expected) with ordinality as i(in_set, kind, namespace, name, expected, item)
    left join heads h on h.kind = i.kind and h.namespace = i.namespace and h.name = i.name
    where case
        when i.expected = 0 then h.revision is not null
        when i.expected = -1 then h.revision is null or h.deleting
        else h.revision is distinct from i.expected
    end;
    bad_sets := coalesce(bad_sets, '{}');
    if bad_sets @> sets then
        return;
    end if;

    -- A write that got here replaces exactly the version that it expected, so that is what it names as the one before.
    -- A packed version (app/store/packing) has its labels and fields in the body.
    insert into versions (revision, kind, namespace, name, uid, change, marks, old_marks, body, previous, node)
    select commit_write_sets.previous + item, kind, namespace, name, uid, change,
        case when substring(body from 1 for 1) <> '\x01' then mark end, old_mark, body, nullif(replaced, -1), node
    from unnest(sets, kinds, namespaces, names, uids, changes, labellings, old_labellings, bodies, expected, nodes)
        with ordinality as i(in_set, kind, namespace, name, uid, change, mark, old_mark, body, replaced, node, item)
    where change <> 'G' and in_set <> all (bad_sets);

    if 'A' = any (changes) then
        insert into heads (kind, namespace, name, uid, revision, deleting, owner, node, marks, dormant, expires_at)
        select kind, namespace, name, uid, previous + item, deleting, owner, node, mark, i.dormant, expiry
        from unnest(sets, kinds, namespaces, names, uids, changes, deletings, owners, nodes, labellings, dormants, expiries)
            with ordinality as i(in_set, kind, namespace, name, uid, change, deleting, owner, node, mark, dormant, expiry, item)
        where change = 'A' and in_set <> all (bad_sets);
    end if;
    if 'M' = any (changes) then
        update heads h set revision = previous + i.item, deleting = i.deleting, owner = i.owner, node = i.node, marks = i.mark,
            dormant = i.dormant, expires_at = i.expiry
        from unnest(sets, kinds, namespaces, names, changes, deletings, owners, nodes, labellings, dormants, expiries)
            with ordinality as i(in_set, kind, namespace, name, change, deleting, owner, node, mark, dormant, expiry, item)
        where i.change = 'M' and i.in_set <> all (bad_sets)
            and h.kind = i.kind and h.namespace = i.namespace and h.name = i.name;
    end if;
    if 'D' = any (changes) then
        -- Controllers do not hold all pods: that these have no owner any more must outlive a crash.
        insert into departed_owners (uid)
        select i.uid from unnest(sets, kinds, uids, changes) as i(in_set, kind, uid, change)
        where i.change = 'D' and i.kind = 'jobs.batch' and i.in_set <> all (bad_sets)
            and exists (select from heads h where h.owner = i.uid)
        on conflict do nothing;
        delete from heads h
        using unnest(sets, kinds, namespaces, names, changes) as i(in_set, kind, namespace, name, change)
        where i.change = 'D' and i.in_set <> all (bad_sets)
            and h.kind = i.kind and h.namespace = i.namespace and h.name = i.name;
    end if;
    -- Once a batch, not once a write: NOTIFY serialises commits across the fsync.
    perform pg_notify('changes', origin);
end $$;
