# Runs one container, keeps its exit code on disk, and outlives the agent that started it (see process.py).
# Usage: sh shim.sh STATE_DIR WORKING_DIR CGROUPS SETSID KEEPS PYTHON COMMAND...
# stdin gives a line once the agent has written down who we are; stdout and stderr are the container's.
# 7, if the command is bubblewrap's: it reads a byte there before it runs the container.
# KEEPS, if not empty: what keeper.py keeps; then 5 is the container's input or terminal, and 6 its other end.
state=$1 folder=$2 cgroups=$3 setsid=$4 keeps=$5 python=$6
shift 6
read -r go || exit 1 # the agent died before it knew us: nothing may run
echo go >"$state/run" || exit 1 # without this file nothing has run
exec 3>&2 2>/dev/null # what this shell says is not the container's
cd /
trap : HUP INT QUIT TERM # only the container's end ends us
keeper=
if [ "$keeps" ]; then
    ( trap '' TERM; exec "$python" -IS "${0%/*}/keeper.py" "$state" "$keeps" 3>&- 4>&- 5>&- 7<&- ) &
    keeper=$!
    exec 6>&-
fi
while :; do
    (
        read -r me rest </proc/self/stat && echo "$me
$me $rest" >>"$state/run" || exit 128
        # Version 1 moves one thread at once. To move a process takes a grace period of the kernel's RCU: some ten milliseconds.
        for each in $cgroups; do
            file=$each/tasks
            [ -e "$file" ] || file=$each/cgroup.procs
            echo 0 >"$file" || exit 128
        done
        cd "$folder" || exit 128
        unset OLDPWD
        exec </dev/null 2>&3 3>&-
        if [ "$keeps" ]; then exec <&5 5>&-; fi
        if [ "$keeps" = tty ]; then
            exec >&0 2>&0
            exec "$setsid" -c "$@"
        fi
        exec "$setsid" "$@"
    )
    code=$?
    # bubblewrap fails if a mount of the host goes away while it copies them all. Then it has left 7 whole, and nothing has run.
    [ $code = 1 ] && read -r word <&7 && [ "$word" = again ] || break
    : >"$state/inside"
    echo go >"$state/run" || break
done
{ read -r go && read -r main; } <"$state/run" && kill -KILL "-$main" # a container's end is the end of all in it
# Of the oci runtime: if its crun was killed, the container goes on. What has the container's root now is what the pid stands for.
if [ -f "$state/pid" ]; then
    read -r init <"$state/pid"
    while read -r line; do
        case $line in *" / / "*"upperdir=$state/upper,"*) kill -KILL "$init" && break ;; esac
    done <"/proc/$init/mountinfo"
fi
# What a terminal still shows comes before the end. A keeper that is still starting finds the file.
[ "$keeper" ] && : >"$state/over" && kill "$keeper" && wait "$keeper"
oom=
for each in $cgroups; do # version 2 and 1 count alike whom the kernel killed for memory
    for file in "$each/memory.events" "$each/memory.oom_control"; do
        [ -f "$file" ] && while read -r name count; do
            [ "$name" = oom_kill ] && [ "$count" != 0 ] && oom=" OOMKilled"
        done <"$file"
    done
done
echo "end $code$oom" >>"$state/run"
