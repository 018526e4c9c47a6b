-- A part of a packed version (app/store/packing): 1 its selector index, 2 that of the version before, 3 the object's JSON.
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
end $$
