# Puts the NVDIMM's namespace into fsdax mode and makes a file system there.
make_fsdax() {
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
}
