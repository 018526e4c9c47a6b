# Holds the namespaces of a pod, for as long as its sandbox stands. Writes its pid, as the host has it, to standard output.
# Stdin gives a line once the agent has written down who we are. Usage: sh holder.sh SHM [reap]
# SHM: where to mount the pod's shared memory, in the namespace that this holds.
if [ "$1" ]; then
    mount -t tmpfs -o nosuid,nodev,noexec,mode=1777,size=65536k shm "$1" || exit 1
fi
read -r me rest </proc/self/stat && echo "$me"
read -r go || exit 1 # the agent died before it knew us
exec </dev/null >/dev/null 2>&1
cd /
[ "$2" ] || exec sleep infinity
sleep infinity & # of shared processes this is the first: it takes note of the end of orphans
while :; do wait; done
