# An NVDIMM becomes system RAM, a NUMA node of its own, and capacity memory is bound to it.
region=/sys/bus/nd/devices/region0
node=$(cat $region/target_node)
if perdura run --numa-node $node -- perl -e 1 2>/dev/null; then
	echo "guest: FAILED node $node could be bound to before it had memory"
fi
# As `ndctl create-namespace -f -e namespace0.0 -m devdax` does, with the kernel's own tables in
# plain memory.
seed=$(cat $region/dax_seed)
cat /proc/sys/kernel/random/uuid >$region/$seed/uuid
echo ram >$region/$seed/mode
echo namespace0.0 >$region/$seed/namespace
echo $seed >/sys/bus/nd/drivers/dax_pmem/bind
[ -c /dev/dax0.0 ] || echo 'guest: FAILED no devdax'
# As `daxctl reconfigure-device --mode=system-ram dax0.0` does.
echo online_movable >/sys/devices/system/memory/auto_online_blocks
echo dax0.0 >/sys/bus/dax/drivers/device_dax/unbind
echo dax0.0 >/sys/bus/dax/drivers/kmem/new_id
echo "guest: node $node"
echo "guest: node_kib $(awk '/MemTotal/ { print $4 }' /sys/devices/system/node/node$node/meminfo)"
# The test starts in a ramfs, a file system that ignores memory policies.
mount -t ramfs none /data
cd /data
PERDURA_TEST_NUMA_NODE=$node heap_numa --test-threads 1 --nocapture 2>&1
echo "guest: heap_tests $?"
qemu_numa $node
