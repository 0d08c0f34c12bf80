# Starts a systemd of its own as process 1 of new namespaces, for the unit in $PLACE/units alone.
# Nothing else of the machine can be written there, and no other unit is known there.
# $CGROUP is a new cgroup of version 2, and $INSIDE is where $PLACE is seen.
set -e
if [ "$1" != inside ]; then
	echo $$ >"$CGROUP/cgroup.procs"
	exec unshare --fork --pid --mount --cgroup --uts --ipc --kill-child=KILL sh "$0" inside
fi
mount --make-rprivate /
mount -t proc proc /proc
mount --bind "$PLACE" "$PLACE"
mount -t tmpfs -o mode=755 none /run
mkdir "$INSIDE"
mount --bind "$PLACE" "$INSIDE"
mount -t tmpfs none /tmp
mount -t tmpfs none /var
umount -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount -o remount,bind,ro /
exec env -i container=perdura PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	SYSTEMD_UNIT_PATH="$INSIDE/units" SYSTEMD_GENERATOR_PATH="$INSIDE/none" \
	SYSTEMD_ENVIRONMENT_GENERATOR_PATH="$INSIDE/none" \
	"$SYSTEMD" --system --unit=test.target --log-target=null --show-status=no
