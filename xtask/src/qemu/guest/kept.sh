# As serve.sh, with the server's memory on an NVDIMM with a DAX file system. The first boot makes
# that; later ones find it, with what the server's memory was when the machine was cut.
. /bin/fsdax.sh
mkdir -p /memory
if [ -z "$STARTS" ]; then make_fsdax; fi
mount -t ext4 -o dax /dev/pmem0 /memory || echo 'guest: FAILED mount -o dax'
OPTIONS="$OPTIONS --memory-dir /memory"
. /tasks/serve.sh
