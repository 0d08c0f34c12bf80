# An NVDIMM becomes a DAX file system, and a workload measures it with MAP_SYNC.
region=/sys/bus/nd/devices/region0
# As `ndctl create-namespace -f -e namespace0.0 -m fsdax -M mem` does.
echo namespace0.0 >/sys/bus/nd/drivers/nd_pmem/unbind
seed=$(cat $region/pfn_seed)
cat /proc/sys/kernel/random/uuid >$region/$seed/uuid
echo ram >$region/$seed/mode
echo namespace0.0 >$region/$seed/namespace
echo $seed >/sys/bus/nd/drivers/nd_pmem/bind
[ -b /dev/pmem0 ] || echo 'guest: FAILED no fsdax'
mkfs.ext4 -q -b 4096 /dev/pmem0 || echo 'guest: FAILED mkfs.ext4'
mount -t ext4 -o dax /dev/pmem0 /data || echo 'guest: FAILED mount -o dax'
cat >/tmp/dax.yaml <<END
dax:
  matrix:
    operation: [read, write]
    persist_instruction: [nocache, cache, cacheinv]
  args:
    memory_range: 16M
    access_size: 4096
    min_io_chunk_size: 1M
END
# On tmpfs, which has no DAX, the same workload must be refused.
if perdura-lab access run /tmp/dax.yaml --path /tmp --dax --results /tmp/refused 2>/tmp/why; then
	echo 'guest: FAILED tmpfs was taken for DAX'
fi
cat /tmp/why
perdura-lab access run /tmp/dax.yaml --path /data --dax --results /tmp/results 2>&1
echo "guest: run_status $?"
echo "guest: left $(ls /data | grep -vc lost+found)"
echo "guest: dax_cells $(grep -c '"bandwidth":' /tmp/results/dax.json)"
grep '"place"' /tmp/results/dax.json
echo "guest: done 0"
