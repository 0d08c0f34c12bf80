# Starts the systemd of the Debian in $ROOT as process 1 of new namespaces. $CGROUP is a new cgroup of
# version 2. The machine's files are not seen there, and its kernel's settings cannot be written.
set -e
if [ "$1" != inside ]; then
	echo $$ >"$CGROUP/cgroup.procs"
	exec unshare --fork --pid --mount --cgroup --uts --ipc --kill-child=KILL sh "$0" inside
fi
mount --make-rprivate /
mount --bind "$ROOT" "$ROOT"
cd "$ROOT"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro none sys
mount -t tmpfs none sys/fs/cgroup
mount -t cgroup2 none sys/fs/cgroup
mount -t tmpfs -o mode=755 none run
mount -t tmpfs -o mode=1777 none tmp
mount -t tmpfs -o mode=755 none dev
mkdir dev/shm dev/pts
mount -t tmpfs -o mode=1777 none dev/shm
mount -t devpts -o newinstance,ptmxmode=666 none dev/pts
ln -s pts/ptmx dev/ptmx
for device in null zero full random urandom tty; do
	cp -a "/dev/$device" dev/
done
ln -s /proc/self/fd dev/fd
pivot_root . mnt
umount -l /mnt
# As on a machine: a mount with the credentials of a unit is seen by the unit.
mount --make-rshared /
exec env -i container=perdura PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	/lib/systemd/systemd --system --unit=multi-user.target --log-target=journal --show-status=no \
	</dev/null >/dev/null 2>&1
