//! EVAL, FCALL and their kin: what a script may do, what it leaves when it fails or is stopped, and
//! what several loops see of scripts and functions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::running::{Client, Running, attach, config, open_on, start, start_with};
use perdura_media::sim::SimDevice;
use perdura_server::ServerConfig;

/// Runs a script without keys.
fn eval(client: &mut Client, script: &str) -> String {
    eval_with(client, script, &[], &[])
}

fn eval_with(client: &mut Client, script: &str, keys: &[&str], args: &[&str]) -> String {
    let count = keys.len().to_string();
    let mut words = vec!["EVAL", script, &count];
    words.extend(keys);
    words.extend(args);
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    client.send(&words);
    client.reply_text()
}

/// Runs each script and compares its reply.
fn check(client: &mut Client, scripts: &[(&str, &str)]) {
    for (script, reply) in scripts {
        assert_eq!(eval(client, script), *reply, "{script}");
    }
}

#[test]
fn values_become_replies_and_back() {
    let server = start(config());
    let client = &mut server.client();
    check(
        client,
        &[
            ("return 1", ":1"),
            ("return 3.99", ":3"),
            ("return 'x'", "$1 x"),
            ("return true", ":1"),
            ("return false", "$-1"),
            ("return {1,2,nil,3}", "*2 :1 :2"),
            ("return {ok='fine'}", "+fine"),
            ("return {err='MY broken'}", "-MY broken"),
            ("return redis.error_reply('MY err')", "-MY err"),
            ("return redis.status_reply('fine')", "+fine"),
            ("return redis.call('set', 'k', 1.5)", "+OK"),
            ("return redis.call('get', 'k')", "$3 1.5"),
            ("return type(redis.call('get', 'absent'))", "$7 boolean"),
            (
                "return redis.pcall('incr', 'k').err",
                "$43 ERR value is not an integer or out of range",
            ),
        ],
    );
    assert!(
        eval(client, "redis.call('incr', 'k')")
            .starts_with("-ERR value is not an integer or out of range script: "),
    );
    let place = eval(client, "\nlocal x = nil\nreturn x.y");
    assert!(place.contains("user_script:3: attempt to index local 'x'"), "{place}");
    assert!(place.ends_with(", on @user_script:3."), "{place}");
}

#[test]
fn what_a_script_wrote_before_its_own_error_stays() {
    let server = start(config());
    let client = &mut server.client();
    let script = "redis.call('set', KEYS[1], 'v'); error('broken')";
    assert!(eval_with(client, script, &["a"], &[]).starts_with("-ERR user_script:1: broken"));
    assert_eq!(client.call("GET a"), "$1 v");
    // In a transaction, too.
    assert_eq!(client.call("MULTI"), "+OK");
    let script = "redis.call('set', KEYS[1], 'w'); error('broken')";
    assert_eq!(eval_with(client, script, &["a"], &[]), "+QUEUED");
    assert_eq!(client.call("SET b 1"), "+QUEUED");
    assert!(client.call("EXEC").starts_with("*2 -ERR user_script:1: broken"));
    assert_eq!(client.call("GET a"), "$1 w");
    assert_eq!(client.call("GET b"), "$1 1");
}

#[test]
fn keys_that_are_not_named_are_used_all_the_same() {
    let server = start(config());
    let client = &mut server.client();
    let many = "for i = 1, 100 do redis.call('set', 'key:' .. i, i) end
        redis.call('publish', 'c', 'x')
        return {redis.call('dbsize'), math.random(1, 1000000), math.random(1, 1000000)}";
    let reply = eval(client, many);
    assert!(reply.starts_with("*3 :100 "), "{reply}");
    assert_eq!(client.call("GET key:77"), "$2 77");
    // In another database, which is left at the script's end.
    assert_eq!(eval(client, "redis.call('select', 9) redis.call('set', 'k', 'nine')"), "$-1");
    assert_eq!(client.call("EXISTS k"), ":0");
    assert_eq!(eval(client, "redis.call('select', 9) return redis.call('get', 'k')"), "$4 nine");
    assert_eq!(client.call("MULTI"), "+OK");
    assert_eq!(eval(client, "return redis.call('incrby', 'key:5', 10)"), "+QUEUED");
    assert_eq!(eval(client, "return #redis.call('keys', '*')"), "+QUEUED");
    assert_eq!(client.call("EXEC"), "*2 :15 :100");
    assert!(eval(client, "return redis.call('info', 'keyspace')").contains("db0:keys=100"));
}

/// A server that stops scripts after so many milliseconds.
fn strict(limit_ms: u64) -> ServerConfig {
    ServerConfig { script_limit_ms: limit_ms, script_memory_max: 16 << 20, ..config() }
}

#[test]
fn a_script_without_end_is_stopped_and_leaves_nothing() {
    let server = start(strict(50));
    let client = &mut server.client();
    for script in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do pcall(error) end",
        "xpcall(function() while true do end end, function(e) while true do end end)",
        "local f = coroutine.wrap(function() while true do end end) while true do pcall(f) end",
        "while true do local c = coroutine.create(function() while true do end end)
            coroutine.resume(c) end",
        "local s = string.rep('a', 100000) return string.find(s, string.rep('a-', 50) .. 'b')",
        "local s = string.rep('a', 30000) return string.gsub(s, '.-b', 'x')",
        "local s = string.rep('a', 30000) for m in string.gmatch(s, '.-.-b') do end",
        "local s = string.rep('a', 1000000)
            return string.find(s, string.rep('a', 500000) .. 'b', 1, true)",
        "while true do redis.call('set', KEYS[1], 'x') end",
        "while true do pcall(redis.call, 'incr', KEYS[1]) end",
        "while true do collectgarbage() end",
        "local t = {} for i = 1, 200 do t[i] = string.rep('x', 60000) .. i end
            while true do table.sort(t) end",
        "local t = {} for i = 1, 100000 do t[i] = i end
            while true do cjson.decode(cjson.encode(t)) end",
        "setmetatable({}, {__index = function(t, k) return t[k + 1] end})[1] = nil
            return string.gsub('x', 'x', function() while true do end end)",
    ] {
        let began = Instant::now();
        let script = format!("redis.call('set', KEYS[1], 'left') {script}");
        let reply = eval_with(client, &script, &["k"], &[]);
        assert!(reply.contains("longer than busy-reply-threshold"), "{script}: {reply}");
        assert!(began.elapsed() < Duration::from_secs(5), "{script}");
        assert_eq!(client.call("EXISTS k"), ":0", "{script}");
    }
    assert_eq!(eval(client, "return 1"), ":1");
}

#[test]
fn a_script_that_eats_memory_is_stopped_and_leaves_nothing() {
    let server = start(strict(10_000));
    let client = &mut server.client();
    for script in [
        "local t = {} while true do t[#t + 1] = string.rep('x', 1000) .. #t end",
        "local s = 'x' while true do s = s .. s end",
        "return string.rep('x', 2^40)",
        "return string.rep('x', 10^7) .. string.rep('y', 10^7)",
        "pcall(function() local s = 'x' while true do s = s .. s end end) return 1",
        "while true do pcall(string.rep, 'x', 2^30) end",
        "xpcall(function() local s = 'x' while true do s = s .. s end end, tostring)",
        "local t = {string.rep('x', 1000)} for i = 1, 17 do t = {t, t, t} end return t",
        "local s = string.rep('x', 1000000) local t = {} for i = 1, 100 do t[i] = s end return t",
        "local s = string.rep('x', 1000000) local t = {} for i = 1, 100 do t[i] = s end
            return cjson.encode(t)",
        "local s = string.rep('x', 1000000) local t = {} for i = 1, 100 do t[i] = s end
            return table.concat(t)",
        "local s = string.rep('x', 5000) return string.gsub(s, 'x', s)",
        "return struct.pack('c0', string.rep('x', 2^24))",
    ] {
        let script = format!("redis.call('set', KEYS[1], 'left') {script}");
        let reply = eval_with(client, &script, &["k"], &[]);
        assert!(reply.contains("more memory than script-memory-limit"), "{script}: {reply}");
        assert_eq!(client.call("EXISTS k"), ":0", "{script}");
    }
    assert_eq!(eval(client, "return 1"), ":1");
}

#[test]
fn hostile_scripts_get_an_error_and_the_next_script_runs() {
    let server = start(strict(5000));
    let client = &mut server.client();
    for script in [
        "local function f() return f() + 1 end return f()",
        "local function f() return pcall(f) end return f()",
        "local t = {} for i = 1, 100000 do t = {t} end return cjson.encode(t)",
        "return cjson.decode(string.rep('[', 100000))",
        "return cmsgpack.unpack(string.rep('\\145', 100000))",
        "local t = {} t[1] = t return cmsgpack.pack(t)",
        "local t = {} t[1] = t return t",
        "return {unpack({}, 1, 1e8)}",
        "return string.byte(string.rep('x', 1000000), 1, -1)",
        "return string.find('x', string.rep('(', 1000))",
        "return string.find(string.rep('x', 1000), string.rep('x?', 1000))",
        "return loadstring('\\27Lua')()",
        "return loadstring(string.dump(function() return 1 end))()",
        "return load(function() return nil end)",
        "return string.format('%99999d', 1)",
        "return setmetatable(_G, {})",
        "getmetatable('').__index = nil",
        "getmetatable(_G).__index = nil",
        "rawset(_G, 'x', 1)",
        "rawset(redis, 'call', 1)",
        "redis.call = nil",
        "string.rep = nil",
        "table.insert(string, 1)",
        "x = 1",
        "return y",
        "return debug",
        "return require",
        "return print",
        "return dofile",
        "return newproxy(true)",
        "setfenv(0, {})",
        "setfenv(redis.call, {})",
        "setfenv(pcall, {})",
        "return getfenv(redis.call).x",
        "redis.call('eval', 'return 1', 0)",
        "redis.call('multi')",
        "redis.call('subscribe', 'c')",
        "redis.call()",
        "redis.call({})",
        "redis.call('nothing')",
        "redis.call('get')",
        "struct.pack('i9999', 1)",
        "struct.unpack('c0', 'x')",
        "error({})",
        "error()",
        "error(nil)",
        "error(setmetatable({}, {__index = error}))",
        "redis.setresp(9)",
        "return tostring(setmetatable({}, {__tostring = function() error('x') end}))",
    ] {
        let reply = eval(client, script);
        assert!(!reply.is_empty(), "{script}");
        assert_eq!(eval(client, "return redis.call('ping')"), "+PONG", "{script}: {reply}");
        assert_eq!(eval(client, "return ('x'):rep(3)"), "$3 xxx", "{script}: {reply}");
        assert_eq!(eval(client, "return rawget(_G, 'x')"), "$-1", "{script}: {reply}");
    }
    for (script, part) in [
        ("return setmetatable(_G, {})", "Attempt to modify a readonly table"),
        ("getmetatable(_G).__index = nil", "Attempt to modify a readonly table"),
        ("table.insert(string, 1)", "Attempt to modify a readonly table"),
        ("return y", "Script attempted to access nonexistent global variable 'y'"),
        ("redis.call('eval', 'return 1', 0)", "This Redis command is not allowed from script"),
        ("redis.call('nothing')", "Unknown Redis command called from script"),
        ("redis.call('get')", "Wrong number of args calling Redis command from script"),
    ] {
        assert!(eval(client, script).contains(part), "{script}: {}", eval(client, script));
    }
}

#[test]
fn functions_outlive_the_server_and_are_seen_by_all_loops() {
    let device = SimDevice::new(0, 1);
    let opened = open_on(Arc::new(device.clone()), true);
    let store = Arc::clone(&opened.store);
    let several = ServerConfig { threads: 2, ..config() };
    let server = start_with(several, opened);
    let mut clients = [server.client(), server.client(), server.client()];
    let code = "#!lua name=lib\n\
        redis.register_function('add', function(keys, args)\n\
          return redis.call('incrby', keys[1], args[1]) end)\n\
        redis.register_function{function_name='see', flags={'no-writes'}, description='looks',\n\
          callback=function(keys) return redis.call('get', keys[1]) end}";
    clients[0].send(&[b"FUNCTION", b"LOAD", code.as_bytes()]);
    assert_eq!(clients[0].reply_text(), "$3 lib");
    for client in &mut clients {
        assert!(client.call("FCALL add 1 k 5").starts_with(':'));
    }
    assert_eq!(clients[1].call("FCALL_RO see 1 k"), "$2 15");
    assert!(clients[1].call("FCALL_RO add 1 k 5").contains("Can not execute a script with write"));
    // What users do to all keys does not touch the libraries.
    assert_eq!(clients[1].call("FLUSHALL"), "+OK");
    assert_eq!(clients[1].call("DBSIZE"), ":0");
    assert_eq!(clients[1].call("KEYS *"), "*0");
    assert_eq!(clients[2].call("FCALL add 1 k 1"), ":1");
    clients[0].send(&[b"FUNCTION", b"LOAD", code.as_bytes()]);
    assert_eq!(clients[0].reply_text(), "-ERR Library 'lib' already exists");
    clients[0].send(&[b"FUNCTION", b"DUMP"]);
    let dump = clients[0].reply();
    drop(clients);
    server.stop();

    store.region().close(1).unwrap();
    drop(store);
    let opened = open_on(Arc::new(device.power_cycle(1)), true);
    let server = start_with(config(), opened);
    let mut client = server.client();
    assert_eq!(client.call("FCALL add 1 k 1"), ":2");
    let listed = client.call("FUNCTION LIST WITHCODE");
    assert!(listed.contains("looks") && listed.contains("register_function"), "{listed}");
    assert_eq!(client.call("FUNCTION DELETE lib"), "+OK");
    assert_eq!(client.call("FCALL add 1 k 1"), "-ERR Function not found");
    let body = &dump[dump.iter().position(|byte| *byte == b'\n').unwrap() + 1..dump.len() - 2];
    client.send(&[b"FUNCTION", b"RESTORE", body]);
    assert_eq!(client.reply_text(), "+OK");
    assert_eq!(client.call("FCALL add 1 k 1"), ":3");
    assert_eq!(client.call("FUNCTION FLUSH"), "+OK");
    assert_eq!(client.call("FUNCTION LIST"), "*0");
}

#[test]
fn another_loop_kills_a_script() {
    let server = start(ServerConfig { threads: 2, script_limit_ms: 60_000, ..config() });
    let (mut a, mut b) = (server.client(), server.client());
    assert_eq!(b.call("SCRIPT KILL"), "-NOTBUSY No scripts in execution right now.");
    a.send(&[b"EVAL", b"redis.call('set', 'k', 1) while true do end", b"0"]);
    // Until the script runs there is nothing to kill.
    while b.call("SCRIPT KILL") != "+OK" {}
    assert!(a.reply_text().starts_with("-ERR Script killed by user"));
    assert_eq!(b.call("EXISTS k"), ":0");
    assert_eq!(a.call("PING"), "+PONG");
    let code = "#!lua name=l\nredis.register_function('f', function() while true do end end)";
    a.send(&[b"FUNCTION", b"LOAD", code.as_bytes()]);
    a.reply();
    a.send(&[b"FCALL", b"f", b"0"]);
    while b.call("SCRIPT KILL").starts_with("-NOTBUSY") {}
    assert!(b.call("SCRIPT KILL").starts_with("-BUSY Redis is busy running a script."));
    assert_eq!(b.call("FUNCTION KILL"), "+OK");
    assert!(a.reply_text().starts_with("-ERR Script killed by user"));
}

#[test]
fn scripts_are_known_to_all_loops_until_they_are_flushed() {
    let server = start(ServerConfig { threads: 2, ..config() });
    let (mut a, mut b) = (server.client(), server.client());
    a.send(&[b"SCRIPT", b"LOAD", b"return ARGV[1]"]);
    let sha = a.reply_text().split(' ').nth(1).unwrap().to_owned();
    assert_eq!(b.call(&format!("EVALSHA {sha} 0 x")), "$1 x");
    assert_eq!(b.call(&format!("EVALSHA {} 0 x", sha.to_uppercase())), "$1 x");
    assert_eq!(b.call(&format!("SCRIPT EXISTS {sha} {}", "0".repeat(40))), "*2 :1 :0");
    assert_eq!(b.call("SCRIPT FLUSH"), "+OK");
    for client in [&mut a, &mut b] {
        assert_eq!(
            client.call(&format!("EVALSHA {sha} 0 x")),
            "-NOSCRIPT No matching script. Please use EVAL."
        );
    }
    assert_eq!(b.call("SCRIPT DEBUG NO"), "+OK");
}

/// What the keys that the killed scripts write hold.
fn written(client: &mut Client) -> String {
    let script = "return {redis.call('get', 's'), redis.call('lrange', 'l', 0, -1),
        redis.call('hgetall', 'h'), redis.call('zcard', 'z'), redis.call('exists', 'old')}";
    eval(client, script)
}

/// Calls `act`, killed after so many steps of the heap, and returns the server that goes on with
/// the memory, and whether `act` got through before.
fn killed_inside(fuse: u64, prepare: &str, act: &dyn Fn(&mut Client)) -> (Running, bool) {
    let device = SimDevice::new(0, fuse);
    let server = start_with(config(), open_on(Arc::new(device.clone()), false));
    let mut client = server.client();
    eval(&mut client, prepare);
    let store = Arc::clone(&server.store);
    store.heap().kill_after(fuse);
    act(&mut client);
    let got_through = !store.heap().is_killed();
    drop(client);
    server.stop();
    let opened = match fuse.is_multiple_of(3) {
        true => {
            store.region().close(1).unwrap();
            drop(store);
            open_on(Arc::new(device.power_cycle(fuse)), false)
        }
        false => attach(store, Arc::new(device)),
    };
    (start_with(config(), opened), got_through)
}

#[test]
fn a_script_killed_at_any_step_is_whole_or_absent() {
    let prepare = "redis.call('set', 'old', 'v') redis.call('rpush', 'l', 'a', 'b')";
    let script = "redis.call('set', 's', string.rep('x', 300)) redis.call('lpush', 'l', 'c')
        redis.call('hset', 'h', 'f', 'v', 'g', 'w') redis.call('zadd', 'z', 1, 'm', 2, 'n')
        redis.call('del', 'old') redis.call('set', 's', 'y')";
    let (server, _) = killed_inside(u64::MAX, prepare, &|_| ());
    let before = written(&mut server.client());
    let (server, _) = killed_inside(u64::MAX, prepare, &|client| drop(eval(client, script)));
    let after = written(&mut server.client());
    let mut fuse = 1;
    loop {
        let act = |client: &mut Client| drop(eval(client, script));
        let (server, got_through) = killed_inside(fuse, prepare, &act);
        let found = written(&mut server.client());
        assert!(found == after || !got_through && found == before, "killed after {fuse}: {found}");
        if got_through {
            break;
        }
        fuse += 1;
    }
    assert!(fuse > 10, "the script took {fuse} steps only");
}

#[test]
fn libraries_killed_at_any_step_are_the_old_or_the_new() {
    let code = |name: &str, result: u32| {
        format!(
            "#!lua name={name}\nredis.register_function('{name}', function() return {result} end)"
        )
    };
    let load = |client: &mut Client, code: &str| {
        client.send(&[b"FUNCTION", b"LOAD", b"REPLACE", code.as_bytes()]);
        client.reply_text()
    };
    for has_old in [false, true] {
        let mut fuse = 1;
        loop {
            let device = SimDevice::new(0, fuse);
            let server = start_with(config(), open_on(Arc::new(device.clone()), false));
            let mut client = server.client();
            if has_old {
                assert_eq!(load(&mut client, &code("f", 1)), "$1 f");
            }
            let store = Arc::clone(&server.store);
            store.heap().kill_after(fuse);
            let reply = load(&mut client, &code("f", 2));
            let got_through = !store.heap().is_killed();
            drop(client);
            server.stop();
            let server = start_with(config(), attach(store, Arc::new(device)));
            let mut client = server.client();
            let found = client.call("FCALL f 0");
            let before = if has_old { ":1" } else { "-ERR Function not found" };
            let what = format!("killed after {fuse}: {reply}, then {found}");
            assert!(found == ":2" || !got_through && found == before, "{what}");
            assert!(found == ":2" || reply != "$1 f", "{what}");
            // It goes on working.
            assert_eq!(load(&mut client, &code("g", 3)), "$1 g");
            assert_eq!(client.call("FCALL g 0"), ":3");
            if got_through {
                break;
            }
            fuse += 1;
        }
    }
}
