//! Users over several loops: what they may do, when a change counts, the file, the log.

use std::os::unix::fs::PermissionsExt;

use perdura_server::{Listener, ServerConfig, StartError};

use crate::check;
use crate::running::{Client, Running, config, start};

const DENIED: &str = "-NOPERM User bob has no permissions to run the 'set' command";

/// A server of three loops with a client of each.
fn three() -> (Running, [Client; 3]) {
    let server = start(ServerConfig { threads: 3, ..config() });
    let clients = [server.client(), server.client(), server.client()];
    (server, clients)
}

#[test]
fn a_change_counts_for_every_command_that_is_sent_after_its_reply() {
    let (_server, [mut root, mut bob, mut other]) = three();
    check(&mut root, &[("ACL SETUSER bob on >x ~* +@all", "+OK")]);
    check(&mut bob, &[("AUTH bob x", "+OK"), ("SET a 1", "+OK"), ("ACL WHOAMI", "$3 bob")]);
    for _ in 0..50 {
        check(&mut root, &[("ACL SETUSER bob -set", "+OK")]);
        check(&mut bob, &[("SET a 1", DENIED), ("GET a", "$1 1")]);
        check(&mut root, &[("ACL SETUSER bob +set", "+OK")]);
        check(&mut bob, &[("SET a 1", "+OK")]);
        check(&mut root, &[("ACL SETUSER bob <x >y", "+OK")]);
        let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
        check(&mut other, &[("AUTH bob x", wrong), ("AUTH bob y", "+OK"), ("RESET", "+RESET")]);
        check(&mut root, &[("ACL SETUSER bob <y >x", "+OK")]);
    }
    // Whoever the default user is not, a change of another user leaves it as it was.
    check(&mut other, &[("SET b 1", "+OK"), ("ACL WHOAMI", "$7 default")]);
}

#[test]
fn the_clients_of_a_deleted_user_go_and_a_new_one_of_the_same_name_is_not_theirs() {
    let (server, [mut root, mut bob, mut other]) = three();
    check(&mut root, &[("ACL SETUSER bob on >x ~* &* +@all", "+OK")]);
    check(&mut bob, &[("AUTH bob x", "+OK"), ("CLIENT SETNAME first", "+OK")]);
    check(&mut other, &[("AUTH bob x", "+OK"), ("CLIENT SETNAME second", "+OK")]);
    assert_eq!(root.call("CLIENT LIST").matches("user=bob").count(), 2);
    check(&mut root, &[("ACL DELUSER bob nobody", ":1"), ("ACL SETUSER bob on nopass", "+OK")]);
    assert!(!root.call("CLIENT LIST").contains("user=bob"));
    assert!(bob.reply().is_empty() && other.reply().is_empty());
    // Who removes itself gets the reply first.
    let mut own = server.client();
    check(&mut root, &[("ACL SETUSER own on nopass ~* +@all", "+OK")]);
    check(&mut own, &[("AUTH own x", "+OK"), ("ACL DELUSER own", ":1")]);
    assert!(own.reply().is_empty());
    check(&mut root, &[("ACL DELUSER default", "-ERR The 'default' user cannot be removed")]);
}

#[test]
fn who_listens_to_a_channel_that_it_may_not_hear_any_more_goes() {
    let (_server, [mut root, mut bob, mut other]) = three();
    check(&mut root, &[("ACL SETUSER bob on >x ~* &* +@all", "+OK")]);
    check(&mut bob, &[("AUTH bob x", "+OK")]);
    bob.call("PSUBSCRIBE a*");
    check(&mut other, &[("AUTH bob x", "+OK")]);
    other.call("SUBSCRIBE abc");
    // The pattern is compared as it is; a channel is matched.
    check(&mut root, &[("ACL SETUSER bob resetchannels &a* &x", "+OK")]);
    check(&mut root, &[("PUBLISH abc 1", ":2")]);
    assert!(bob.reply_text().starts_with("*4 $8 pmessage"));
    assert!(other.reply_text().starts_with("*3 $7 message"));
    check(&mut root, &[("ACL SETUSER bob resetchannels &ab*", "+OK")]);
    assert!(bob.reply().is_empty());
    // Its loop may be about to take it off the list.
    let began = std::time::Instant::now();
    while root.call("PUBSUB NUMPAT") != ":0" {
        assert!(began.elapsed().as_secs() < 60, "a client that has gone is still listed");
    }
    check(&mut root, &[("PUBLISH abc 2", ":1")]);
    assert!(other.reply_text().starts_with("*3 $7 message"));
}

#[test]
fn exec_checks_each_command_again() {
    let (_server, [mut root, mut bob, _]) = three();
    check(&mut root, &[("ACL SETUSER bob on >x ~* +@all", "+OK")]);
    check(&mut bob, &[("AUTH bob x", "+OK"), ("MULTI", "+OK"), ("SET a 1", "+QUEUED")]);
    check(
        &mut bob,
        &[("SET b 1", "+QUEUED"), ("PUBLISH c 1", "-NOPERM No permissions to access a channel")],
    );
    check(&mut bob, &[("EXEC", "-EXECABORT Transaction discarded because of previous errors.")]);
    check(&mut bob, &[("MULTI", "+OK"), ("SET a 1", "+QUEUED"), ("SET b 1", "+QUEUED")]);
    check(&mut root, &[("ACL SETUSER bob resetkeys ~a", "+OK")]);
    let reply = bob.call("EXEC");
    let why = "This command is no longer allowed for the following reason: no permission to touch \
               the specified keys";
    assert!(
        reply.starts_with("*2 +OK -NOPERM ACLs rules changed") && reply.contains(why),
        "{reply}"
    );
    check(&mut root, &[("EXISTS a b", ":1")]);
    let log = root.call("ACL LOG");
    assert!(log.contains("$7 context $5 multi $6 object $1 b $8 username $3 bob"), "{log}");
}

#[test]
fn a_client_that_waits_is_checked_again_when_its_command_can_run() {
    let (_server, [mut root, mut bob, _]) = three();
    check(&mut root, &[("ACL SETUSER bob on >x ~* +@all", "+OK")]);
    check(&mut bob, &[("AUTH bob x", "+OK")]);
    assert!(bob.write("BLPOP q 0"));
    while !root.call("INFO clients").contains("blocked_clients:1") {}
    check(&mut root, &[("ACL SETUSER bob resetkeys", "+OK"), ("LPUSH q 1", ":1")]);
    assert_eq!(bob.reply_text(), "-NOPERM No permissions to access a key");
    check(&mut root, &[("LLEN q", ":1")]);
    assert!(root.call("ACL LOG").contains("$6 object $1 q $8 username $3 bob"));
    assert!(
        root.call("INFO commandstats")
            .contains("cmdstat_blpop:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1")
    );
}

#[test]
fn tries_are_logged_and_counted() {
    let server = start(ServerConfig { acl_log_len_max: 3, ..config() });
    let (mut root, mut bob) = (server.client(), server.client());
    check(&mut root, &[("ACL SETUSER bob on >x ~a +get +mget", "+OK")]);
    bob.call("AUTH bob wrong");
    check(&mut bob, &[("AUTH bob x", "+OK")]);
    for _ in 0..3 {
        check(&mut bob, &[("SET a 1", DENIED)]);
    }
    check(&mut bob, &[("MGET a b", "-NOPERM No permissions to access a key")]);
    let log = root.call("ACL LOG 2");
    assert!(log.starts_with("*2 *20 $5 count :1 $6 reason $3 key $7 context $8 toplevel"), "{log}");
    assert!(log.contains("$5 count :3 $6 reason $7 command"), "{log}");
    assert!(log.contains("$6 object $1 b") && log.contains("cmd=mget user=bob"), "{log}");
    check(&mut bob, &[("DEL a", "-NOPERM User bob has no permissions to run the 'del' command")]);
    assert!(root.call("ACL LOG 10").starts_with("*3 "), "the log is as long as was asked for");
    let info = root.call("INFO stats");
    for field in ["auth:1", "cmd:4", "key:1", "channel:0"] {
        assert!(info.contains(&format!("acl_access_denied_{field}")), "{field} in {info}");
    }
    check(&mut root, &[("ACL LOG RESET", "+OK"), ("ACL LOG", "*0")]);
}

#[test]
fn users_are_kept_in_a_file_and_one_with_a_mistake_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users.acl");
    std::fs::write(&file, "user default on nopass ~* &* +@all\n\nuser al on >al ~x* (%R~b +get)\n")
        .unwrap();
    let with_file = || ServerConfig { acl_file: Some(file.clone()), threads: 3, ..config() };
    let server = start(with_file());
    let (mut root, mut al) = (server.client(), server.client());
    check(&mut al, &[("AUTH al al", "+OK")]);
    check(&mut root, &[("ACL SETUSER bob on >bob allkeys +get", "+OK"), ("ACL SAVE", "+OK")]);
    let saved = std::fs::read_to_string(&file).unwrap();
    assert_eq!(saved.lines().count(), 3);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(saved.contains("(%R~b resetchannels -@all +get)") && !saved.contains(">"), "{saved}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left");
    // Each mistake is told with its line, and the users are as before.
    let broken = saved.replace("user bob", "usr bob") + "user al off\nuser eve +nosuch >secret <no";
    std::fs::write(&file, &broken).unwrap();
    let error = root.call("ACL LOAD");
    let name = file.display();
    for part in [
        format!("{name}:2 should start with user keyword"),
        "WARNING: Duplicate user 'al' found on line 4. ".to_owned(),
        format!("{name}:5: Error in applying operation '+nosuch': Unknown command"),
        format!("{name}:5: The password you are trying to remove"),
        "no change to the previously active ACL rules was performed".to_owned(),
    ] {
        assert!(error.contains(&part), "{part} in {error}");
    }
    assert!(!error.contains("secret"), "{error}");
    check(&mut root, &[("ACL USERS", "*3 $2 al $3 bob $7 default")]);
    check(
        &mut al,
        &[("ACL WHOAMI", "-NOPERM User al has no permissions to run the 'acl|whoami' command")],
    );
    match Listener::bind(&with_file()) {
        Err(StartError::Users(text)) => assert!(text.contains(":5: Error in applying"), "{text}"),
        _ => panic!("a server starts with a file that has mistakes"),
    }
    std::fs::write(&file, &saved).unwrap();
    // As in Redis, all but the default user's clients have to say again who they are.
    check(
        &mut root,
        &[
            ("ACL DELUSER bob", ":1"),
            ("ACL LOAD", "+OK"),
            ("ACL USERS", "*3 $2 al $3 bob $7 default"),
        ],
    );
    assert!(al.reply().is_empty());
}

#[test]
fn the_default_user_has_the_password_and_an_open_address_needs_one() {
    let server = start(ServerConfig { requirepass: Some("geheim".to_owned()), ..config() });
    let mut client = server.client();
    check(&mut client, &[("GET a", "-NOAUTH Authentication required."), ("AUTH geheim", "+OK")]);
    assert!(client.call("ACL LIST").contains("default on sanitize-payload #"));
    check(&mut client, &[("CONFIG SET requirepass x", "+OK")]);
    let mut other = server.client();
    check(
        &mut other,
        &[("AUTH default x", "+OK"), ("CONFIG GET requirepass", "*2 $11 requirepass $1 x")],
    );
    check(&mut other, &[("ACL SETUSER default nopass", "+OK")]);
    check(&mut server.client(), &[("GET a", "$-1")]);

    let dir = tempfile::tempdir().unwrap();
    let open = |users: &[&str]| {
        let users = users.iter().map(|line| (*line).to_owned()).collect();
        let bind = vec!["0.0.0.0:0".parse().unwrap()];
        ServerConfig { bind, users, allow_plaintext: true, ..config() }
    };
    let refused =
        |users: &[&str]| matches!(open(users).check(), Err(StartError::Unprotected { .. }));
    assert!(refused(&[]) && refused(&["user default on nopass +get ~a"]));
    assert!(refused(&["user bob on >x +@all"]));
    assert!(refused(&["user default on >x +@all", "user bob on nopass ~* +get"]));
    assert!(!refused(&["user default off", "user bob nopass ~* +get", "user al on nopass +ping"]));
    assert!(!refused(&["user default off"]) && !refused(&["user default on nopass +ping"]));
    assert!(!refused(&["user default on >x ~* +@all"]));
    let server = start(open(&["user default on >x ~* &* +@all"]));
    let addr = std::net::SocketAddr::from(([127, 0, 0, 1], server.addr.port()));
    let mut client = Client::connect(addr);
    check(&mut client, &[("AUTH x", "+OK")]);
    let list = client.call("ACL LIST");
    for (change, user) in [
        ("ACL SETUSER default nopass", "default"),
        ("ACL SETUSER bob on nopass ~* +get", "bob"),
        ("ACL SETUSER bob on nopass (~* +@write)", "bob"),
        ("CONFIG SET requirepass ", "default"),
    ] {
        let reply = client.call(change);
        assert!(reply.contains("the server listens on 0.0.0.0:0"), "{change}: {reply}");
        assert!(reply.contains(&format!("user '{user}' without a password")), "{change}: {reply}");
        assert_eq!(client.call("ACL LIST"), list, "{change}");
    }
    check(&mut client, &[("ACL SETUSER bob nopass +@all ~*", "+OK")]);
    assert!(client.call("ACL SETUSER bob on").starts_with("-ERR the server listens on"));
    check(&mut client, &[("ACL SETUSER bob resetpass on", "+OK")]);

    let file = dir.path().join("users");
    std::fs::write(&file, "user default on >x ~* &* +@all\n").unwrap();
    let server = start(ServerConfig { acl_file: Some(file.clone()), ..open(&[]) });
    let addr = std::net::SocketAddr::from(([127, 0, 0, 1], server.addr.port()));
    let mut client = Client::connect(addr);
    check(&mut client, &[("AUTH x", "+OK")]);
    let list = client.call("ACL LIST");
    std::fs::write(&file, "user default on >x +@all\nuser bob on nopass ~* +get\n").unwrap();
    assert!(client.call("ACL LOAD").contains("user 'bob' without a password"));
    assert_eq!(client.call("ACL LIST"), list);
}

#[test]
fn rules_are_told_as_they_were_given() {
    let server = start(ServerConfig { acl_all_channels: true, ..config() });
    let mut client = server.client();
    check(
        &mut client,
        &[
            ("ACL SETUSER a %R~r %W~w %RW~b ~r +@read -get +config -config|set +config", "+OK"),
            ("ACL SETUSER a +select|1 +select|2 (+@all ~* -@admin)", "+OK"),
            (
                "ACL SETUSER a ~x (~* ~y)",
                "-ERR Error in ACL SETUSER modifier '(~* ~y)': Adding a pattern after the * \
                 pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try \
                 'resetkeys' to start with an empty list of patterns",
            ),
            ("ACL DRYRUN a select 1", "+OK"),
            (
                "ACL DRYRUN a acl list",
                "$55 User a has no permissions to run the 'acl|list' command",
            ),
        ],
    );
    let list = client.call("ACL LIST");
    let rules = "user a off sanitize-payload ~r %W~w ~b &* -@all +@read -get +config +select|1 \
                 +select|2 (~* &* +@all -@admin)";
    assert!(list.contains(rules), "{list}");
    let random = client.call("ACL GENPASS 5");
    assert!(random.starts_with("$2 ") && client.call("ACL GENPASS") != client.call("ACL GENPASS"));
}

#[test]
fn a_script_may_do_what_its_user_may() {
    let server = start(config());
    let (mut admin, mut client) = (server.client(), server.client());
    check(
        &mut admin,
        &[
            ("ACL SETUSER lua on nopass +@scripting +@string -set ~own:*", "+OK"),
            ("SET own:a 1", "+OK"),
            ("SET other 2", "+OK"),
        ],
    );
    assert_eq!(client.call("AUTH lua x"), "+OK");
    let mut eval = |script: &str, key: &str| {
        let reply = client.call_bytes(&[b"EVAL", script.as_bytes(), b"1", key.as_bytes()]);
        String::from_utf8(reply).unwrap()
    };
    assert_eq!(eval("return redis.call('get', KEYS[1])", "own:a"), "$1\r\n1\r\n");
    for (script, why) in [
        ("return redis.call('set', KEYS[1], 1)", "no permissions to run the 'set' command"),
        ("return redis.call('get', 'other')", "No permissions to access a key"),
    ] {
        let refused = eval(script, "own:a");
        let named = refused.contains("ACL failure in script: ") && refused.contains(why);
        assert!(refused.starts_with("-NOPERM") && named, "{refused}");
    }
    let asked = "return tostring(redis.acl_check_cmd('set', KEYS[1], 1))";
    assert_eq!(eval(asked, "own:a"), "$5\r\nfalse\r\n");
    let asked = "return tostring(redis.acl_check_cmd('get', KEYS[1]))";
    assert_eq!(eval(asked, "own:a"), "$4\r\ntrue\r\n");
    assert!(eval("return 1", "other").starts_with("-NOPERM"), "EVAL names a key of others");
    assert!(admin.call("ACL LOG").contains("$3 lua"), "{}", admin.call("ACL LOG"));
}
