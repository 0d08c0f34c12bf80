# A server on the disk, with a client that checks and writes; stopped by a line on the console.
ip link set lo up
mount -t ext4 /dev/vda /data || echo 'guest: FAILED mount'
# Not a terminal, or the server would draw progress bars.
mkfifo /tmp/said
cat /tmp/said &
perdura serve --dir /data/store $OPTIONS >/tmp/said 2>&1 &
server=$!
qemu_guest 127.0.0.1:6379 $STARTS &
client=$!
read warning
kill -TERM $server
wait $server
status=$?
wait $client
echo "guest: served $status"
