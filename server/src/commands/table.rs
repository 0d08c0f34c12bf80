//! Every command: one line here, one function in its group's file.

use super::spec::flag::*;
use super::spec::{Group, Handler, Keys, Spec};
use super::{
    client, connection, expiry, figures, hashes, info, introspect, keys, perdura, server, settings,
    strings, strings_set, transactions,
};
use Group::{Connection, Generic, Hash, Server, Transactions};
use Handler::{Container, Control, Data, Field, Keyspace, Read};

const NONE: Keys = Keys { first: 0, last: 0, step: 0 };
const KEY: Keys = Keys { first: 1, last: 1, step: 1 };
const SECOND: Keys = Keys { first: 2, last: 2, step: 1 };
const TWO: Keys = Keys { first: 1, last: 2, step: 1 };
const ALL: Keys = Keys { first: 1, last: -1, step: 1 };
const PAIRS: Keys = Keys { first: 1, last: -1, step: 2 };

/// Flags of commands about the connection: allowed whatever the state of the data.
const CONN: u32 = NOSCRIPT | LOADING | STALE;
/// Flags of a write that may need memory.
const GROW: u32 = WRITE | DENYOOM;

#[allow(clippy::too_many_arguments)] // one line of the table
const fn c(
    name: &'static str,
    arity: i32,
    flags: u32,
    keys: Keys,
    group: Group,
    since: &'static str,
    handler: Handler,
    summary: &'static str,
) -> Spec {
    Spec { name, arity, flags, keys, group, since, summary, handler }
}

/// The table. Names are looked up by `Index`, so the order is for readers.
#[rustfmt::skip]
pub(crate) static TABLE: &[Spec] = &[
    // Strings
    c("append", 3, GROW | FAST, KEY, Group::String, "2.0.0", Data(strings::append), "Append a value to a key"),
    c("decr", 2, GROW | FAST, KEY, Group::String, "1.0.0", Data(strings::decr), "Decrement the integer value of a key by one"),
    c("decrby", 3, GROW | FAST, KEY, Group::String, "1.0.0", Data(strings::decrby), "Decrement the integer value of a key by the given number"),
    c("get", 2, READ | FAST, KEY, Group::String, "1.0.0", Read(strings::get), "Get the value of a key"),
    c("getdel", 2, WRITE | FAST, KEY, Group::String, "6.2.0", Data(strings_set::getdel), "Get the value of a key and delete the key"),
    c("getex", -2, WRITE | FAST, KEY, Group::String, "6.2.0", Data(strings_set::getex), "Get the value of a key and optionally set its expiration"),
    c("getrange", 4, READ, KEY, Group::String, "2.4.0", Read(strings::getrange), "Get a substring of the string stored at a key"),
    c("getset", 3, GROW | FAST, KEY, Group::String, "1.0.0", Data(strings_set::getset), "Set the string value of a key and return its old value"),
    c("incr", 2, GROW | FAST, KEY, Group::String, "1.0.0", Data(strings::incr), "Increment the integer value of a key by one"),
    c("incrby", 3, GROW | FAST, KEY, Group::String, "1.0.0", Data(strings::incrby), "Increment the integer value of a key by the given amount"),
    c("incrbyfloat", 3, GROW | FAST, KEY, Group::String, "2.6.0", Data(strings::incrbyfloat), "Increment the float value of a key by the given amount"),
    c("mget", -2, READ | FAST, ALL, Group::String, "1.0.0", Data(strings::mget), "Get the values of all the given keys"),
    c("mset", -3, GROW, PAIRS, Group::String, "1.0.1", Data(strings::mset), "Set multiple keys to multiple values"),
    c("msetnx", -3, GROW, PAIRS, Group::String, "1.0.1", Data(strings::msetnx), "Set multiple keys to multiple values, only if none of the keys exist"),
    c("psetex", 4, GROW, KEY, Group::String, "2.6.0", Data(strings_set::psetex), "Set the value and expiration in milliseconds of a key"),
    c("set", -3, GROW, KEY, Group::String, "1.0.0", Data(strings_set::set), "Set the string value of a key"),
    c("setex", 4, GROW, KEY, Group::String, "2.0.0", Data(strings_set::setex), "Set the value and expiration of a key"),
    c("setnx", 3, GROW | FAST, KEY, Group::String, "1.0.0", Data(strings_set::setnx), "Set the value of a key, only if the key does not exist"),
    c("setrange", 4, GROW, KEY, Group::String, "2.2.0", Data(strings::setrange), "Overwrite part of a string at key starting at the specified offset"),
    c("strlen", 2, READ | FAST, KEY, Group::String, "2.2.0", Read(strings::strlen), "Get the length of the value stored in a key"),
    c("substr", 4, READ, KEY, Group::String, "1.0.0", Read(strings::getrange), "Get a substring of the string stored at a key"),
    // Hashes
    c("hdel", -3, WRITE | FAST, KEY, Hash, "2.0.0", Data(hashes::hdel), "Delete one or more hash fields"),
    c("hexists", 3, READ | FAST, KEY, Hash, "2.0.0", Field(hashes::hexists), "Determine if a hash field exists"),
    c("hget", 3, READ | FAST, KEY, Hash, "2.0.0", Field(hashes::hget), "Get the value of a hash field"),
    c("hgetall", 2, READ, KEY, Hash, "2.0.0", Data(hashes::hgetall), "Get all the fields and values in a hash"),
    c("hincrby", 4, GROW | FAST, KEY, Hash, "2.0.0", Data(hashes::hincrby), "Increment the integer value of a hash field by the given number"),
    c("hincrbyfloat", 4, GROW | FAST, KEY, Hash, "2.6.0", Data(hashes::hincrbyfloat), "Increment the float value of a hash field by the given amount"),
    c("hkeys", 2, READ, KEY, Hash, "2.0.0", Data(hashes::hkeys), "Get all the fields in a hash"),
    c("hlen", 2, READ | FAST, KEY, Hash, "2.0.0", Read(hashes::hlen), "Get the number of fields in a hash"),
    c("hmget", -3, READ | FAST, KEY, Hash, "2.0.0", Data(hashes::hmget), "Get the values of all the given hash fields"),
    c("hmset", -4, GROW | FAST, KEY, Hash, "2.0.0", Data(hashes::hmset), "Set multiple hash fields to multiple values"),
    c("hrandfield", -2, READ, KEY, Hash, "6.2.0", Data(hashes::hrandfield), "Get one or multiple random fields from a hash"),
    c("hscan", -3, READ, KEY, Hash, "2.8.0", Data(hashes::hscan), "Incrementally iterate hash fields and associated values"),
    c("hset", -4, GROW | FAST, KEY, Hash, "2.0.0", Data(hashes::hset), "Set the string value of a hash field"),
    c("hsetnx", 4, GROW | FAST, KEY, Hash, "2.0.0", Data(hashes::hsetnx), "Set the value of a hash field, only if the field does not exist"),
    c("hstrlen", 3, READ | FAST, KEY, Hash, "3.2.0", Field(hashes::hstrlen), "Get the length of the value of a hash field"),
    c("hvals", 2, READ, KEY, Hash, "2.0.0", Data(hashes::hvals), "Get all the values in a hash"),
    // Keys
    c("copy", -3, GROW | ALL_SHARDS, TWO, Generic, "6.2.0", Data(keys::copy), "Copy a key"),
    c("dbsize", 1, READ | FAST, NONE, Server, "1.0.0", Keyspace(keys::dbsize), "Return the number of keys in the selected database"),
    c("del", -2, WRITE, ALL, Generic, "1.0.0", Data(keys::del), "Delete a key"),
    c("exists", -2, READ | FAST, ALL, Generic, "1.0.0", Data(keys::exists), "Determine if a key exists"),
    c("expire", -3, WRITE | FAST, KEY, Generic, "1.0.0", Data(expiry::expire), "Set a key's time to live in seconds"),
    c("expireat", -3, WRITE | FAST, KEY, Generic, "1.2.0", Data(expiry::expireat), "Set the expiration for a key as a UNIX timestamp"),
    c("expiretime", 2, READ | FAST, KEY, Generic, "7.0.0", Read(expiry::expiretime), "Get the expiration Unix timestamp for a key"),
    c("flushall", -1, WRITE, NONE, Server, "1.0.0", Keyspace(keys::flushall), "Remove all keys from all databases"),
    c("flushdb", -1, WRITE, NONE, Server, "1.0.0", Keyspace(keys::flushdb), "Remove all keys from the current database"),
    c("keys", 2, READ, NONE, Generic, "1.0.0", Keyspace(keys::keys), "Find all keys matching the given pattern"),
    c("move", 3, WRITE | FAST | ALL_SHARDS, KEY, Generic, "1.0.0", Data(keys::move_key), "Move a key to another database"),
    c("object", -2, SUBS, NONE, Generic, "2.2.3", Container, "A container for object introspection commands"),
    c("object|encoding", 3, READ, SECOND, Generic, "2.2.3", Data(keys::encoding), "Inspect the internal encoding of an object, as Redis would name it"),
    c("object|freq", 3, READ, SECOND, Generic, "4.0.0", Read(keys::freq), "Get the logarithmic access frequency counter of an object"),
    c("object|help", 2, LOADING | STALE, NONE, Generic, "6.2.0", Control(introspect::object_help), "Show helpful text about the different subcommands"),
    c("object|idletime", 3, READ, SECOND, Generic, "2.2.3", Read(keys::idletime), "Get the time since an object was last accessed"),
    c("object|refcount", 3, READ, SECOND, Generic, "2.2.3", Read(keys::refcount), "Get the number of references to the value of the key"),
    c("persist", 2, WRITE | FAST, KEY, Generic, "2.2.0", Data(expiry::persist), "Remove the expiration from a key"),
    c("pexpire", -3, WRITE | FAST, KEY, Generic, "2.6.0", Data(expiry::pexpire), "Set a key's time to live in milliseconds"),
    c("pexpireat", -3, WRITE | FAST, KEY, Generic, "2.6.0", Data(expiry::pexpireat), "Set the expiration for a key as a UNIX timestamp in milliseconds"),
    c("pexpiretime", 2, READ | FAST, KEY, Generic, "7.0.0", Read(expiry::pexpiretime), "Get the expiration Unix timestamp for a key in milliseconds"),
    c("pttl", 2, READ | FAST, KEY, Generic, "2.6.0", Read(expiry::pttl), "Get the time to live for a key in milliseconds"),
    c("randomkey", 1, READ, NONE, Generic, "1.0.0", Keyspace(keys::randomkey), "Return a random key from the keyspace"),
    c("rename", 3, WRITE, TWO, Generic, "1.0.0", Data(keys::rename), "Rename a key"),
    c("renamenx", 3, WRITE | FAST, TWO, Generic, "1.0.0", Data(keys::renamenx), "Rename a key, only if the new key does not exist"),
    c("scan", -2, READ, NONE, Generic, "2.8.0", Keyspace(keys::scan), "Incrementally iterate the keys space"),
    c("touch", -2, READ | FAST, ALL, Generic, "3.2.1", Data(keys::exists), "Counts those of the given keys that exist"),
    c("ttl", 2, READ | FAST, KEY, Generic, "1.0.0", Read(expiry::ttl), "Get the time to live for a key in seconds"),
    c("type", 2, READ | FAST, KEY, Generic, "1.0.0", Read(keys::kind), "Determine the type stored at key"),
    c("unlink", -2, WRITE | FAST, ALL, Generic, "4.0.0", Data(keys::del), "Delete a key; memory is reclaimed before the reply"),
    c("wait", 3, NOSCRIPT, NONE, Generic, "3.0.0", Control(server::wait), "Returns the number of replicas, which is always 0"),
    // Connection
    c("auth", -2, CONN | FAST | NOAUTH, NONE, Connection, "1.0.0", Control(connection::auth), "Authenticate to the server"),
    c("client", -2, SUBS, NONE, Connection, "2.4.0", Container, "A container for client connection commands"),
    c("client|getname", 2, CONN, NONE, Connection, "2.6.9", Control(client::getname), "Get the current connection name"),
    c("client|help", 2, LOADING | STALE, NONE, Connection, "5.0.0", Control(client::help), "Show helpful text about the different subcommands"),
    c("client|id", 2, CONN, NONE, Connection, "5.0.0", Control(client::id), "Returns the client ID for the current connection"),
    c("client|info", 2, CONN, NONE, Connection, "6.2.0", Control(client::info), "Returns information about the current client connection"),
    c("client|kill", -3, CONN | ADMIN, NONE, Connection, "2.4.0", Control(client::kill), "Kill the connection of a client"),
    c("client|list", -2, CONN | ADMIN, NONE, Connection, "2.4.0", Control(client::list), "Get the list of client connections"),
    c("client|no-evict", 3, CONN | ADMIN, NONE, Connection, "7.0.0", Control(client::no_evict), "Set client eviction mode for the current connection"),
    c("client|no-touch", 3, CONN, NONE, Connection, "7.2.0", Control(client::no_touch), "Controls whether commands alter the LRU/LFU of keys"),
    c("client|pause", -3, CONN | ADMIN, NONE, Connection, "3.0.0", Control(client::pause), "Stop processing commands from clients for some time"),
    c("client|reply", 3, CONN, NONE, Connection, "3.2.0", Control(client::reply), "Instruct the server whether to reply to commands"),
    c("client|setinfo", 4, CONN, NONE, Connection, "7.2.0", Control(client::setinfo), "Set client or connection specific info"),
    c("client|setname", 3, CONN, NONE, Connection, "2.6.9", Control(client::setname), "Set the current connection name"),
    c("client|unpause", 2, CONN | ADMIN, NONE, Connection, "6.2.0", Control(client::unpause), "Resume processing of clients that were paused"),
    c("echo", 2, FAST, NONE, Connection, "1.0.0", Control(connection::echo), "Echo the given string"),
    c("hello", -1, CONN | FAST | NOAUTH, NONE, Connection, "6.0.0", Control(connection::hello), "Handshake with the server"),
    c("ping", -1, FAST, NONE, Connection, "1.0.0", Control(connection::ping), "Ping the server"),
    c("quit", -1, CONN | FAST | NOAUTH | UNQUEUED, NONE, Connection, "1.0.0", Control(connection::quit), "Close the connection"),
    c("reset", 1, CONN | FAST | NOAUTH | UNQUEUED, NONE, Connection, "6.2.0", Control(connection::reset), "Reset the connection"),
    c("select", 2, LOADING | STALE | FAST, NONE, Connection, "1.0.0", Control(connection::select), "Change the selected database for the current connection"),
    // Transactions
    c("discard", 1, CONN | FAST | UNQUEUED, NONE, Transactions, "2.0.0", Control(transactions::discard), "Discard all commands issued after MULTI"),
    c("exec", 1, CONN | UNQUEUED, NONE, Transactions, "1.2.0", Control(transactions::exec), "Execute all commands issued after MULTI, all or none"),
    c("multi", 1, CONN | FAST | UNQUEUED, NONE, Transactions, "1.2.0", Control(transactions::multi), "Mark the start of a transaction block"),
    c("unwatch", 1, CONN | FAST, NONE, Transactions, "2.2.0", Control(transactions::unwatch), "Forget about all watched keys"),
    c("watch", -2, CONN | FAST | UNQUEUED, ALL, Transactions, "2.2.0", Control(transactions::watch), "Watch the given keys to determine execution of the MULTI/EXEC block"),
    // Server
    c("bgsave", -1, ADMIN | NOSCRIPT, NONE, Server, "1.0.0", Control(server::bgsave), "Make a checkpoint while clients are served"),
    c("command", -1, SUBS | LOADING | STALE, NONE, Server, "2.8.13", Control(introspect::info), "Get details about all commands"),
    c("command|count", 2, LOADING | STALE, NONE, Server, "2.8.13", Control(introspect::count), "Get total number of commands"),
    c("command|docs", -2, LOADING | STALE, NONE, Server, "7.0.0", Control(introspect::docs), "Get the documentation of commands"),
    c("command|getkeys", -4, LOADING | STALE, NONE, Server, "2.8.13", Control(introspect::getkeys), "Extract keys given a full command"),
    c("command|help", 2, LOADING | STALE, NONE, Server, "5.0.0", Control(introspect::command_help), "Show helpful text about the different subcommands"),
    c("command|info", -2, LOADING | STALE, NONE, Server, "2.8.13", Control(introspect::info), "Get details of the given commands, or of all"),
    c("command|list", -2, LOADING | STALE, NONE, Server, "7.0.0", Control(introspect::list), "Get an array of command names"),
    c("config", -2, SUBS, NONE, Server, "2.0.0", Container, "A container for server configuration commands"),
    c("config|get", -3, CONN | ADMIN, NONE, Server, "2.0.0", Control(settings::get), "Get the values of configuration parameters"),
    c("config|help", 2, LOADING | STALE, NONE, Server, "5.0.0", Control(settings::help), "Show helpful text about the different subcommands"),
    c("config|resetstat", 2, CONN | ADMIN, NONE, Server, "2.0.0", Control(settings::resetstat), "Reset the stats returned by INFO"),
    c("config|rewrite", 2, CONN | ADMIN, NONE, Server, "2.8.0", Control(settings::rewrite), "Refused: the server has no configuration file of its own"),
    c("config|set", -4, CONN | ADMIN, NONE, Server, "2.0.0", Control(settings::set), "Set configuration parameters"),
    c("debug", -2, SUBS | ADMIN | NOSCRIPT | LOADING | STALE, NONE, Server, "1.0.0", Container, "A container for debugging commands"),
    c("debug|sleep", 3, ADMIN | NOSCRIPT | NOMULTI, NONE, Server, "1.0.0", Control(server::debug_sleep), "Stop the server for some seconds, where debugging is enabled"),
    c("info", -1, LOADING | STALE | FACTS, NONE, Server, "1.0.0", Control(info::info), "Get information and statistics about the server"),
    c("lastsave", 1, LOADING | STALE | FAST, NONE, Server, "1.0.0", Control(server::lastsave), "Get the UNIX time of the last checkpoint asked for"),
    c("latency", -2, SUBS, NONE, Server, "2.8.13", Container, "A container for latency diagnostics commands"),
    c("latency|doctor", 2, CONN | ADMIN, NONE, Server, "2.8.13", Control(server::latency_doctor), "Says where to look for latency"),
    c("latency|help", 2, LOADING | STALE, NONE, Server, "2.8.13", Control(server::latency_help), "Show helpful text about the different subcommands"),
    c("latency|history", 3, CONN | ADMIN, NONE, Server, "2.8.13", Control(server::latency_none), "Always empty: latency events are not recorded"),
    c("latency|latest", 2, CONN | ADMIN, NONE, Server, "2.8.13", Control(server::latency_none), "Always empty: latency events are not recorded"),
    c("latency|reset", -2, CONN | ADMIN, NONE, Server, "2.8.13", Control(server::latency_reset), "Returns 0: latency events are not recorded"),
    c("memory", -2, SUBS, NONE, Server, "4.0.0", Container, "A container for memory diagnostics commands"),
    c("memory|doctor", 2, FACTS, NONE, Server, "4.0.0", Control(server::memory_doctor), "Outputs memory problems report"),
    c("memory|help", 2, LOADING | STALE, NONE, Server, "4.0.0", Control(server::memory_help), "Show helpful text about the different subcommands"),
    c("memory|stats", 2, FACTS, NONE, Server, "4.0.0", Control(server::memory_stats), "Show memory usage details"),
    c("memory|usage", -3, READ, SECOND, Server, "4.0.0", Read(keys::memory_usage), "Estimate the memory usage of a key"),
    c("perdura", -2, SUBS, NONE, Server, "0.1.0", Container, "A container for the promise's commands"),
    c("perdura|budget", -2, ADMIN | NOSCRIPT | NOMULTI, NONE, Server, "0.1.0", Control(perdura::budget), "Return or change the bytes that may be dirty"),
    c("perdura|drill", -2, ADMIN | NOSCRIPT | NOMULTI, NONE, Server, "0.1.0", Control(perdura::drill), "Flush a full budget for real and report its time"),
    c("perdura|help", 2, LOADING | STALE, NONE, Server, "0.1.0", Control(perdura::help), "Show helpful text about the different subcommands"),
    c("perdura|stats", 2, LOADING | STALE | FACTS, NONE, Server, "0.1.0", Control(figures::stats), "Get the figures of INFO perdura as a map of integers"),
    c("save", 1, ADMIN | NOSCRIPT | NOMULTI, NONE, Server, "1.0.0", Control(server::save), "Make a checkpoint"),
    c("shutdown", -1, CONN | ADMIN | NOMULTI, NONE, Server, "1.0.0", Control(server::shutdown), "Flush everything and stop the server"),
    c("slowlog", -2, SUBS, NONE, Server, "2.2.12", Container, "A container for slow log commands"),
    c("slowlog|get", -2, CONN | ADMIN, NONE, Server, "2.2.12", Control(server::slowlog_get), "Get the slow log's entries"),
    c("slowlog|help", 2, LOADING | STALE, NONE, Server, "6.2.0", Control(server::slowlog_help), "Show helpful text about the different subcommands"),
    c("slowlog|len", 2, CONN | ADMIN, NONE, Server, "2.2.12", Control(server::slowlog_len), "Get the slow log's length"),
    c("slowlog|reset", 2, CONN | ADMIN, NONE, Server, "2.2.12", Control(server::slowlog_reset), "Clear all entries from the slow log"),
    c("time", 1, LOADING | STALE | FAST, NONE, Server, "2.6.0", Control(server::time), "Return the current server time"),
];
