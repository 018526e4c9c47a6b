# Becomes crun, for a command in a container, in a mount namespace of its own. Called by the runtime. Usage: sh crun.sh FOLDER CRUN...
# FOLDER is the container's: names of sockets are relative to it, as they may not be long.
# crun does not work beside both versions of cgroups, nor without any: the second is hidden, an empty file system stands for none.
if [ -e /sys/fs/cgroup/unified/cgroup.procs ]; then
    umount /sys/fs/cgroup/unified 2>/dev/null || mount -t tmpfs tmpfs /sys/fs/cgroup/unified || exit 1
fi
for each in /sys/fs/cgroup/*; do
    [ -e "$each" ] || mount -t tmpfs tmpfs /sys/fs/cgroup || exit 1
    break
done
cd "$1" || exit 1
shift
exec "$@"
