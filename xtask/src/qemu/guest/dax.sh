# An NVDIMM becomes a DAX file system, and a workload measures it with MAP_SYNC.
. /bin/fsdax.sh
make_fsdax
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
