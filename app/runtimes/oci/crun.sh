# Mounts the root of one container, unless LAYERS is empty, and becomes crun. Called by the shim, and for commands in containers, in a
# mount namespace of its own: whatever ends the container, its mounts end with it.
# Usage: sh crun.sh FOLDER LAYERS LOWER OPTIONS CRUN...
folder=$1 layers=$2 lower=$3 options=$4
shift 4
if [ "$layers" ]; then
    exec 3>&2 2>>"$folder/crun.log" # what is said here is not the container's
    cd "$layers" || exit 1 # all names of layers have to fit into a page
    mount -t overlay overlay -o "lowerdir=$lower,upperdir=$folder/upper,workdir=$folder/work,$options" "$folder/rootfs" || exit 1
    cd "$folder" || exit 1
    exec 2>&3 3>&-
fi
# crun does not work beside both versions of cgroups, nor without any: the second is hidden, an empty file system stands for none.
if [ -e /sys/fs/cgroup/unified/cgroup.procs ]; then
    umount /sys/fs/cgroup/unified 2>/dev/null || mount -t tmpfs tmpfs /sys/fs/cgroup/unified || exit 1
fi
for each in /sys/fs/cgroup/*; do
    [ -e "$each" ] || mount -t tmpfs tmpfs /sys/fs/cgroup || exit 1
    break
done
exec "$@"
