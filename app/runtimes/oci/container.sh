# Mounts the root of one container, and becomes crun, which runs it. Called by the shim, in a mount namespace of its own:
# whatever ends the container, its mounts end with it.
# Usage: sh container.sh FOLDER LAYERS LOWER OPTIONS COMMAND...
folder=$1 layers=$2 lower=$3 options=$4
shift 4
exec 3>&2 2>>"$folder/crun.log" # what is said here is not the container's
cd "$layers" || exit 1 # all names of layers have to fit into a page
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$folder/upper,workdir=$folder/work,$options" "$folder/rootfs" || exit 1
cd "$folder" || exit 1
exec 2>&3 3>&-
exec "$@"
