"""Versions of objects are packed: about a sixth of their bytes. The table `history` becomes `versions`, which holds them packed.
Records of Jobs are packed, too.

A view takes its name and shows them as they were, so processes of the version before go on. What is stored stays as it is. The
way down unpacks all of it, which takes a second for some thousand versions.

Revision ID: 0018
Revises: 0017
"""

import base64
import zlib

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

NAMES = ("history_by_kind", "history_by_time", "history_of_ends")


def upgrade() -> None:
    op.rename_table("history", "versions")
    op.execute("alter table versions rename constraint history_pkey to versions_pkey")
    for name in NAMES:
        op.execute(f"alter index {name} rename to {name.replace('history', 'versions')}")
    op.alter_column("versions", "marks", existing_type=sa.Text(), nullable=True)
    op.add_column("versions", sa.Column("node", sa.Text()))
    for function in (PACKING_DICTIONARY, VERSION_PART, COMMIT_WRITE_SETS):
        op.get_bind().exec_driver_sql(function)
    op.execute(HISTORY)
    _replace_views("history", BODY)
    # Every update changes an indexed column, so space that pages keep free is of no use.
    op.execute("alter table heads reset (fillfactor)")


def downgrade() -> None:
    op.execute("alter table heads set (fillfactor = 70)")
    for unpack in (UNPACK, UNPACK_JOBS, UNPACK_EVENTS):
        op.get_bind().exec_driver_sql(unpack)
    _replace_views("versions", "r.body")
    op.execute("drop view history")
    op.drop_column("versions", "node")
    op.alter_column("versions", "marks", existing_type=sa.Text(), nullable=False)
    op.rename_table("versions", "history")
    op.execute("alter table history rename constraint versions_pkey to history_pkey")
    for name in NAMES:
        op.execute(f"alter index {name.replace('history', 'versions')} rename to {name}")
    op.get_bind().exec_driver_sql(OLD_COMMIT_WRITE_SETS)
    op.execute("drop function version_part")
    op.execute("drop function packing_dictionary")


def _replace_views(versions: str, job: str) -> None:
    """They stay, with the rights that were granted on them."""
    statements = [f"finished_jobs as {FINISHED_JOBS.format(job)}"]
    for kind, name in VIEWS.items():
        statements.append(f"{name} as {VIEW.format(kind=kind, versions=versions)}")
        statements.append(f"{name}_history as {HISTORY_VIEW.format(kind=kind, versions=versions)}")
    for each in statements:
        op.get_bind().exec_driver_sql(f"create or replace view {each}")


VIEWS = {
    "jobs.batch": "jobs",
    "pods": "pods",
    "nodes": "nodes",
    "namespaces": "namespaces",
    "events": "events",
    "configmaps": "configmaps",
    "leases.coordination.k8s.io": "leases",
}
VIEW = """select h.namespace, h.name, h.uid, h.revision, s.recorded_at,
    convert_from(s.body, 'UTF8')::jsonb as object
from heads h join {versions} s using (revision) where h.kind = '{kind}'"""
HISTORY_VIEW = """select namespace, name, uid, revision, change, recorded_at,
    convert_from(body, 'UTF8')::jsonb as object
from {versions} where kind = '{kind}'"""
HISTORY = """create view history as select revision, kind, namespace, name, uid, change,
    case when marks is null then convert_from(version_part(body, 1), 'UTF8') else marks end as marks,
    case when marks is null then nullif(convert_from(version_part(body, 2), 'UTF8'), '') else old_marks end as old_marks,
    case when marks is null then version_part(body, 3) else body end as body, recorded_at, previous
from versions"""
UNPACK = """update versions set marks = h.marks, old_marks = h.old_marks, body = h.body
from history h where h.revision = versions.revision and versions.marks is null"""
UNPACK_JOBS = r"""update job_records set body = version_part(body, 3) where substring(body from 1 for 1) = '\x01'"""
UNPACK_EVENTS = r"""update job_record_events set bodies = (
    select array_agg(case when substring(body from 1 for 1) = '\x01' then version_part(body, 3) else body end order by place)
    from unnest(bodies) with ordinality as b(body, place))"""
FINISHED_JOBS = """select r.namespace, r.name, r.uid, r.result, r.labels, r.created_at, r.started_at, r.ended_at,
    r.deleted_at, r.rerun_of, coalesce(o.attempts, 0) as attempts_omitted, convert_from({}, 'UTF8')::jsonb as object
from job_records r left join job_record_omissions o on (o.namespace, o.job_uid) = (r.namespace, r.uid)"""
BODY = r"case when substring(r.body from 1 for 1) = '\x01' then version_part(r.body, 3) else r.body end"
DICTIONARY = zlib.decompress(
    base64.b64decode("""
    eNrtW9tT2zgXf+9fkfHLvpCQ0G7byRvlssMOhAxkOzsLzI5iK6CNInllO5CPyf/+naOLLTs2BHpbaFImtXV0OTrXny65X755cx+QmH2mKmFSBP0g
    lFJFTJAUXjvTj0mHye15L9gKpkxEQD+mJKHwOqMpiUhKgv59IMiMAknIiLbfAg3fk5iEWDjNxrStKdy2zBj207Wftv56h18f3av7QOVQUc3KiEGX
    KZnF0HSnu/O+3e3B36jb7eu/v4LlVpDENER2biSPqDqKqEhZuvAZ0yzsZ0p3eU5DKaIk6L/rbgWKCnqLg9T33zEMwTBLENiMCHJNlZ1dmPJ2yBmM
    1k4YDETimC9gMBlTMxDU+yMGWeHkS7IekzS8MdJNG4f+C6gTRnmUjBYx1jnUL597eTk8wqwnfV8lkz4RQqZ6/AQLOvAFMpr0Lcsd/F8JmlKtYk6S
    VHPOaNQGuUzYdea4v1/qhpyMKS/3BQ00Wb848UNxmLI53ack4kzQXM6mTZpyW7I7Sak6ZIIlNzTS5DdBhWstoQqr/8gxcDiLOcVqbTBLeocGBfIA
    UsyJoJ2IzrdjSqbtGZ1JhTZwfwlqY+Iy6Pe67z7++uH9Em36ybLAfgodQm+XuRYvg61L7SW69Hc51gVOKVCITYvpXeoZX2pn0S0CKuZB/yJ3p99P
    P/29d3oyPD4YHZ0O/j4a7B/8CTzPCc/ooZIzLWs0gDM6weeSac1z8xiS9AYKHB8do8aLX9YV7S9XASo4Z2vX8QDPvWB5hb6TyEyFVGuMsxlL9VMY
    Z7oKxgqrhN5vDMPDnEWMdGCg7WtbZ4m9/JuBiz/UFO1sLnk2oycyE1i1kJY2fKiPBDvlbVsGISQ6FeCT/VRldHll+6hrHqMAkxR8+bOus8cJ04IO
    8WHg1fVFYmwEo5V+OCGxFxVzYkQnJOPpCQQjiDk7Xb+HFALbVkBncbrYZ0r71FXQ6Clv33chZDV4maaNSTiVk8kxKmMIsdD4SA85dNo1fASaBJ3m
    JBqZogR9SkfNCWEch+3hXCJmnRNkl9qABPRM0RFR1zSF+hCn0wybj0DcGHXBn4ZKjunowSCH1UaKiIS5gN9cF1SaaDv/5E304C6kNNJzAe0mEKLR
    i+S4dUOSFrQIQXit9Ia2MFIxcI6oZeXU0lYboEK8OemeqpNx7/dBfIP5rB+cZUIwYdVfI56hjM5x6Ky+w/Wn7bF3Blpf+J0dEp7Q5wpxT4oUYiPY
    /kCmrutChGFObt2y9KaVCfSoRcsM3m9dYGCFKKG5oSiaWwLDg0jgcXWQPZ3Sgbr0WigrRHiEMgVWuJs2ymFpfNo6tA5A2GYPfT/od7dcF46OQjl3
    I4EnzRDf6JQT0DsG7dATep5ADpSSqiQDyPpF/qsLnSgkJTmnql0COL1HAE5TGLaBIWbGrp7Vd7mfpcMLVsigu06ShRC3k0nGTRhexYMeRrEIEDyq
    Hv9pXn3sZyNeFfM9xvY1YDGXb3tPgIBbr0FFBltGh1ZTFz7azMRUyFvxI7BlAe781OIwXTWrVEtz8AdzyQhkNQ6wSypXGhNFQHScJbO8SAKsASwX
    0hkk46HkLFw4WpIBNyLKASWkTW6d22e0CFv4PkX4lWMtAwWXJTAL7AJ7ebdspj3fexlmnJc5MZozzz4KsnyZQINSMXHE4JJGat61wdORSMqj2TBX
    EYZNLWrg8ZLQMFOw9sGYS+/SmjF/UyBaQAYMklOBz/XnyltKlTRTgg+Jfk8KTYJMweKOv4EHLo1blAxngvkOTNvTvR+RXnwg8HTg23EBWNGCoZm1
    0mCcJYuxvDMwzpjxRYDZL6gA9OVW0GSYAJhh2eRR21xeuzF84w92+S1ZJEFtV67OIQAotzzwzTYY0DlV5bZ11vgW8rjnAsEezxKNglWiQWadiVec
    wSWgdl6uBVuOYO9rQPFAigIX5+HG2lx9aApGbjri+lRZ+Lj08WI9Ojw3GXgP5gLzJyffHUHvFS59ZjByCfjYsha9A3ME0NQS2QzsvyUnLQ0eEHC3
    QCRJCT27pcrLn4rtk77YqVxZOPzwwIULPFwv712H/0yEiLlpNMpB9VC6rR4L0buepyPA7+ottFcPprsbML0B0xswvQHTGzC9AdMbMP2VwfQrxBBg
    oJ0m7Wri4/pwFamas5DuhhqclWu7OjcySQc0vZVqCsSJ3T22QMbtbA9BU2ajdgXJ+BgGIF8ThmlXYAgd5JT14M3OBt40Ww/AF6rO6IQqKkJ7nrUW
    3vS5eRILBetub33MZTg9RUb2qXF7d8yG1i0IZ/8zwbZRNCnEqyma2dUmTj8apx/27BK5QnpWhAeGJbcOZjQxpe5GRUWVQqZtZc+ODKJGaBEc3DE8
    1N0K6GQCcEPng4M74Eaj7KJ3TwRdXH43jqNPn8IbMub0K4wEqopBA0pfFAHhU4EdnxtBHjMxTZyhx4ri+Sx0kGtnaIqO5S1VQ9fLsu6M0EXSreBf
    mexxkuA2wiewkYPJRKo0eKX5DNU38C4H9Vz6+Y8luvN8V6MgyehoiIdiOx86XfjXq5CSEm2TITcZ8ukZcpPvvlm+q408mxz4I3OgH2S/302ZIS4w
    QSMjeW7uiOR+9kW3Z7wRjgTU1jj3y5j2dv+BaXfuEH27az9NoxQy+pbjgdVhbl5Jsg2J9/EDDMv0ueaV1sXR5LE7QN3VExin1IevJOm1jj7yeqhO
    zuPRPuYWJfG4oL+9vU4mb+Mc2l3/8pPdQlm5/bSaLnSJHtRPIV/OjHfTSjODSq0HuFavRissLoOn3BQayBodF9CSibnkcxqdjv+BGNcp5e0KrR4/
    1VRyub5CelLqr7RtwhmVai5vF3W7vtOc54dK+t4c1bQYRArLCTRRKahOfebqbo49QDO61zqKdfOBVDPCH4OuB3PsvwG8drqVz3qQ9e1XvPRflqY+
    nKjiuFVuno3umnRap8Tlw1osDnNNkT6v7be8FYHT4L3eU21QtF50AVpaC8+vVc2CqV7VUNYzvHVc1SyHvshV2w1O96Sl0UMO+xxX9bBLrahqF7LO
    TWuB51fzVDP1Z/rru+/hr8YoHvHXXO1P0vOqyB71V0+VhaMWXswXLUhx7FqA21o2tx13rVS2ijVHrQ/XHKX8aDeuYemn8+RKJf/nM3ovqVik3yMA
    WpYu7Jgg3iReXL9xc7fLOXxR9B9x819/Cjcv/yyqXq/LWsWuZuy8Yb/llhi1/l6oGnFusSfxw72+YCwnHwkYQoTezskmEDwlEJzbFdELDgTvN4Gg
    JhAUivUQgSkrAsHPHgde6Src3wx68cvvDz/d8ttXX/mnoaG/y/ci19v/B/jtDHg=
    """)
).decode()
PACKING_DICTIONARY = f"""create or replace function packing_dictionary(number int) returns bytea language sql immutable as $$
    select case number when 1 then convert_to($dictionary${DICTIONARY}$dictionary$, 'UTF8') end
$$"""
VERSION_PART = r"""-- A part of a packed version (app/store/packing): 1 its selector index, 2 that of the version before, 3 the object's JSON.
-- For people who query, and for processes of an earlier version: the store unpacks by itself.
create or replace function version_part(packed bytea, part int) returns bytea language plpgsql immutable strict as $$
declare
    dictionary constant bytea := packing_dictionary(get_byte(packed, 0));
    size constant int := octet_length(packed);
    contents bytea := '';
    place int := 5; -- after the number of the dictionary and the length of the contents
    token int;
    many int; -- bytes to be copied
    more int;
    back int; -- where they begin, from the end of what is there
    copied bytea;
begin
    loop
        token := get_byte(packed, place);
        place := place + 1;
        many := token >> 4;
        if many = 15 then
            loop
                more := get_byte(packed, place);
                place := place + 1;
                many := many + more;
                exit when more < 255;
            end loop;
        end if;
        contents := contents || substring(packed from place + 1 for many);
        place := place + many;
        exit when place >= size;
        back := get_byte(packed, place) + (get_byte(packed, place + 1) << 8);
        place := place + 2;
        many := (token & 15) + 4;
        if many = 19 then
            loop
                more := get_byte(packed, place);
                place := place + 1;
                many := many + more;
                exit when more < 255;
            end loop;
        end if;
        back := back - octet_length(contents);
        if back > 0 then
            copied := substring(dictionary from octet_length(dictionary) - back + 1 for many);
            if back < many then -- it goes on from the dictionary into the contents, perhaps beyond their end
                copied := copied || contents;
            end if;
        else
            copied := substring(contents from 1 - back for many);
        end if;
        while octet_length(copied) < many loop -- the copy is part of what is copied
            copied := copied || copied;
        end loop;
        contents := contents || substring(copied from 1 for many);
    end loop;
    many := position('\x0a'::bytea in contents);
    if part = 1 then
        return substring(contents from 1 for many - 1);
    end if;
    contents := substring(contents from many + 1);
    many := position('\x0a'::bytea in contents);
    if part = 2 then
        return substring(contents from 1 for many - 1);
    end if;
    return substring(contents from many + 1);
end $$"""
COMMIT_WRITE_SETS = r"""-- The one door. Applies write sets atomically, each whole or not at all, and gives every write its revision.
--
-- Item j of the arrays gets revision previous + j; refused items and guards leave harmless gaps.
-- changes: A create, M modify, D delete, G guard (no write).
-- expected: 0 must not exist; n > 0 must be at revision n; -1 must exist and not be on its way out.
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
end $$;"""
OLD_COMMIT_WRITE_SETS = """-- The one door. Applies write sets atomically, each whole or not at all, and gives every write its revision.
--
-- Item j of the arrays gets revision previous + j; refused items and guards leave harmless gaps.
-- changes: A create, M modify, D delete, G guard (no write).
-- expected: 0 must not exist; n > 0 must be at revision n; -1 must exist and not be on its way out.
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
    insert into history (revision, kind, namespace, name, uid, change, marks, old_marks, body, previous)
    select commit_write_sets.previous + item, kind, namespace, name, uid, change, mark, old_mark, body, nullif(replaced, -1)
    from unnest(sets, kinds, namespaces, names, uids, changes, labellings, old_labellings, bodies, expected)
        with ordinality as i(in_set, kind, namespace, name, uid, change, mark, old_mark, body, replaced, item)
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
end $$;"""
