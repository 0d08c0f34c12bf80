# Runs a server on the disk and a client that checks and writes. A line on the console stops them.
ip link set lo up
mount -t ext4 /dev/vda /data || echo 'guest: FAILED mount'
# The output is a pipe, because the server would draw progress bars on a terminal.
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
