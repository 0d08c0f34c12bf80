#!/bin/busybox sh
# Process 1 of the guest: prepares file systems and modules, then runs the task that the kernel's
# command line names in TASK. The host stops the machine. If the host is gone, the machine stops
# after ten minutes.
/bin/busybox mkdir -p /proc /sys /dev /data /tmp
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs none /tmp
(sleep 600; poweroff -f) &
while read -r name; do insmod "/modules/$name"; done <"/tasks/$TASK.modules"
. "/tasks/$TASK.sh"
sleep 600
