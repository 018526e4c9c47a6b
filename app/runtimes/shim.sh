# Runs one container, keeps its exit code on disk, and outlives the agent that started it (see process.py).
# Usage: sh shim.sh STATE_DIR WORKING_DIR CGROUP SETSID COMMAND...
# stdin gives a line once the agent has written down who we are; stdout and stderr are the container's.
state=$1 folder=$2 cgroup=$3 setsid=$4
shift 4
read -r go || exit 1 # the agent died before it knew us: nothing may run
exec 3>&2 2>/dev/null # what this shell says is not the container's
cd /
trap : HUP INT QUIT TERM # only the container's end ends us
(
    read -r me rest </proc/self/stat && echo "$me
$me $rest" >"$state/main" || exit 128
    if [ "$cgroup" ]; then echo 0 >"$cgroup/cgroup.procs" || exit 128; fi
    cd "$folder" || exit 128
    unset OLDPWD
    exec </dev/null 2>&3 3>&-
    exec "$setsid" "$@"
)
code=$?
read -r main <"$state/main" && kill -KILL "-$main" # a container's end is the end of all in it
echo "$code" >"$state/rc"
