-- Builds what scripts see: tables that cannot be changed, and functions that cannot be made to run
-- for ever or to catch the end of a script. Everything here uses local names only, so a script that
-- changes an environment changes none of it.
--
-- `host` has the functions written in Rust. What they raise stands for a value that `host.raised`
-- gives to whoever catches it. Those that are called here, and not by scripts, return true and their
-- results, or false and a text to be raised as an error.
local host, base, real_globals = ...

local type, error, tostring, tonumber, select = type, error, tostring, tonumber, select
local rawget, rawset, rawequal, setmetatable = rawget, rawset, rawequal, setmetatable
local raw_next, raw_pairs, raw_getmetatable = next, pairs, getmetatable
local raw_pcall, raw_xpcall, raw_loadstring = pcall, xpcall, loadstring
local raw_setfenv, raw_getfenv, raw_collect = setfenv, getfenv, collectgarbage
local raw_insert, raw_remove, raw_sort, concat = table.insert, table.remove, table.sort, table.concat
local raw_resume = coroutine.resume
local is_over, where_is, out_of_memory = host.is_over, host.where_is, host.out_of_memory
local raised = host.raised
local floor, sub, byte, len = math.floor, string.sub, string.byte, string.len

-- Tables that scripts see but cannot change ------------------------------------------------------

-- The contents of each protected table, by the table that scripts see.
local contents = setmetatable({}, { __mode = 'k' })
local READONLY = 'Attempt to modify a readonly table'

local function refuse_change() error(READONLY, 2) end

local function protect(real)
    local seen = {}
    local meta = { __index = real, __newindex = refuse_change }
    local shown = {}
    contents[shown] = { __index = real, __newindex = refuse_change }
    setmetatable(shown, { __index = contents[shown], __newindex = refuse_change, __metatable = shown })
    meta.__metatable = shown
    setmetatable(seen, meta)
    contents[seen] = real
    return seen, meta, shown
end

local function check_free(t)
    if contents[t] then error(READONLY, 3) end
end

-- Errors that end a script are raised again wherever one is caught ---------------------------------

local function ends(err)
    if err == 'not enough memory' then out_of_memory() end
    return is_over()
end

-- What was raised: an error of Rust stands for a value that waits in the host, or for a failure of
-- Lua itself, which ends the script.
local function original(err)
    if type(err) ~= 'userdata' then return err end
    local value = raised()
    if value == nil then error(err, 0) end
    return value
end

local function caught_pcall(ok, err, ...)
    if ok then return true, err, ... end
    if ends(err) then error(err, 0) end
    err = original(err)
    if type(err) == 'table' then
        local text = err.err
        if type(text) == 'string' or type(text) == 'number' then return false, text end
    end
    return false, err, ...
end

local function caught(ok, err, ...)
    if ok then return true, err, ... end
    if ends(err) then error(err, 0) end
    return false, original(err), ...
end

local G = {}

function G.pcall(...) return caught_pcall(raw_pcall(...)) end

-- Lua calls the handler for what the hook has raised, too, and looks at no time meanwhile.
function G.xpcall(f, handle)
    local function handle_own(err)
        if ends(err) then return err end
        if type(err) == 'userdata' then
            local value = raised()
            if value == nil then return err end
            err = value
        end
        return handle(err)
    end
    return caught(raw_xpcall(f, handle_own))
end

-- The handler of errors that nobody catches: it says where the error was raised.
local function handler(err)
    if ends(err) then return err end
    if type(err) == 'userdata' then
        local value = raised()
        if value == nil then return err end
        err = value
    end
    if type(err) ~= 'table' then err = { err = 'ERR ' .. tostring(err) } end
    local source, line = where_is()
    if source then
        rawset(err, 'source', source)
        rawset(err, 'line', line)
    end
    return err
end

-- What Lua itself brings -------------------------------------------------------------------------

for _, name in raw_pairs({ 'tostring', 'assert', 'tonumber', 'rawequal', 'type', 'select', 'unpack',
    'ipairs', '_VERSION', 'error' }) do
    G[name] = base[name]
end

function G.next(t, key)
    local real = contents[t]
    if real then return raw_next(real, key) end
    return raw_next(t, key)
end

function G.pairs(t)
    if contents[t] then return G.next, t, nil end
    return raw_pairs(t)
end

function G.rawget(t, key) return rawget(contents[t] or t, key) end

function G.rawset(t, key, value)
    check_free(t)
    return rawset(t, key, value)
end

function G.setmetatable(t, meta)
    check_free(t)
    return setmetatable(t, meta)
end

G.getmetatable = raw_getmetatable

function G.gcinfo() return floor(raw_collect('count')) end

-- The collector's settings would outlive the script.
function G.collectgarbage(option, value)
    option = option or 'collect'
    if option == 'count' then return raw_collect('count') end
    if option == 'collect' or option == 'step' then
        local ok, err = host.breathe()
        if not ok then error(err, 2) end
        return raw_collect(option, value)
    end
    if option == 'stop' or option == 'restart' then return 0 end
    if option == 'setpause' or option == 'setstepmul' then return 200 end
    error("bad argument #1 to 'collectgarbage' (invalid option '" .. tostring(option) .. "')", 2)
end

-- A chunk is text: what looks like compiled code is refused as text is that is no Lua.
function G.loadstring(text, name)
    if type(text) ~= 'string' and type(text) ~= 'number' then
        error("bad argument #1 to 'loadstring' (string expected, got " .. type(text) .. ')', 2)
    end
    text = tostring(text)
    if byte(text, 1) == 27 then
        return nil, '[string "' .. (name or '?') .. '"]:1: unexpected symbol near \'<\\27>\''
    end
    return raw_loadstring(text, name or text)
end

function G.load(f, name)
    if type(f) ~= 'function' then
        error("bad argument #1 to 'load' (function expected, got " .. type(f) .. ')', 2)
    end
    local pieces = {}
    while true do
        local piece = f()
        if piece == nil or piece == '' then break end
        if type(piece) ~= 'string' then return nil, 'reader function must return a string' end
        pieces[#pieces + 1] = piece
    end
    return G.loadstring(concat(pieces), name or '=(load)')
end

local own_environment = raw_getfenv(1)

function G.getfenv(f)
    if f == nil then f = 1 end
    if type(f) == 'number' and f > 0 then f = f + 1 end
    local env = raw_getfenv(f)
    if env == own_environment then return G._G end
    return env
end

function G.setfenv(f, env)
    if type(f) == 'number' then
        if f <= 0 then error("'setfenv' cannot change the environment of a thread", 2) end
        f = f + 1
    end
    local now = raw_getfenv(f)
    if now == own_environment then
        error("'setfenv' cannot change environment of given object", 2)
    end
    local changed = raw_setfenv(f, env)
    return changed
end

local co = {}
for name, f in raw_pairs(base.coroutine) do co[name] = f end
function co.resume(...) return caught(raw_resume(...)) end

local tables = {}
for name, f in raw_pairs(base.table) do tables[name] = f end

function tables.insert(t, ...)
    check_free(t)
    return raw_insert(t, ...)
end

function tables.remove(t, ...)
    check_free(t)
    return raw_remove(t, ...)
end

-- Lua compares strings without looking at the time. Where that may take long, it is done by a
-- function, between whose calls the time is looked at.
local function less(a, b) return a < b end

function tables.sort(t, compare)
    if type(t) ~= 'table' then
        error("bad argument #1 to 'sort' (table expected, got " .. type(t) .. ')', 2)
    end
    check_free(t)
    if compare == nil then
        local bytes = 0
        for at = 1, #t do
            local value = t[at]
            if type(value) == 'string' then bytes = bytes + len(value) end
        end
        if bytes > 1000000 or #t > 100000 then compare = less end
    end
    return raw_sort(t, compare)
end

local maths = {}
for name, f in raw_pairs(base.math) do maths[name] = f end
maths.random = host.random
maths.randomseed = host.randomseed

-- Strings: patterns and repetitions are bounded in time and memory ----------------------------------

local strings = {}
for name, f in raw_pairs(base.string) do strings[name] = f end
strings.rep = host.rep
strings.find = host.find
strings.match = host.match

local step = host.match_step

local function gmatch_step(ok, position, ...)
    return ok, position, select('#', ...), ...
end

function strings.gmatch(text, pattern)
    local ok, err = host.check_gmatch(text, pattern)
    if not ok then error(err, 2) end
    local at = 1
    local function next_match(ok, after, ...)
        if not ok then error(after, 3) end
        if not after then return nil end
        at = after
        return ...
    end
    return function() return next_match(step(text, pattern, at)) end
end
strings.gfind = strings.gmatch

local function replaced(repl, whole, first, ...)
    local value
    if type(repl) == 'function' then
        value = repl(first, ...)
    else
        value = repl[first]
    end
    if not value then return whole end
    if type(value) ~= 'string' and type(value) ~= 'number' then
        error('invalid replacement value (a ' .. type(value) .. ')', 4)
    end
    return tostring(value)
end

function strings.gsub(text, pattern, repl, most)
    if type(repl) ~= 'function' and type(repl) ~= 'table' then
        local ok, result, count = host.gsub(text, pattern, repl, most)
        if not ok then error(result, 2) end
        return result, count
    end
    local ok, err = host.check_gsub(text, pattern, most)
    if not ok then error(err, 2) end
    text, pattern = tostring(text), tostring(pattern)
    most = most and tonumber(most) or len(text) + 1
    local anchored = byte(pattern, 1) == 94
    local pieces, count, at = {}, 0, 1
    local function take(ok, from, to, ...)
        if not ok then error(from, 3) end
        if not from then return false end
        if from > at then pieces[#pieces + 1] = sub(text, at, from - 1) end
        count = count + 1
        pieces[#pieces + 1] = replaced(repl, sub(text, from, to), ...)
        if to >= from then
            at = to + 1
        else
            if from <= len(text) then pieces[#pieces + 1] = sub(text, from, from) end
            at = from + 1
        end
        return true
    end
    while count < most and at <= len(text) + 1 do
        if not take(host.next_match(text, pattern, at)) or anchored then break end
    end
    if at <= len(text) then pieces[#pieces + 1] = sub(text, at) end
    return concat(pieces), count
end

-- Libraries of Redis ---------------------------------------------------------------------------------

local json = { null = host.null, _NAME = 'cjson', _VERSION = '2.1.0' }
for _, name in raw_pairs({ 'encode', 'decode', 'encode_max_depth', 'decode_max_depth',
    'encode_number_precision', 'encode_keep_buffer', 'encode_invalid_numbers',
    'decode_invalid_numbers' }) do
    json[name] = host['json_' .. name]
end
json.encode_sparse_array = host.json_encode_sparse_array

local msgpack = {
    pack = host.msgpack_pack,
    unpack = host.msgpack_unpack,
    unpack_one = host.msgpack_unpack_one,
    unpack_limit = host.msgpack_unpack_limit,
    _NAME = 'cmsgpack',
    _VERSION = 'lua-cmsgpack 0.4.0',
}

local structs = {
    pack = host.struct_pack,
    unpack = host.struct_unpack,
    size = host.struct_size,
}

local bits = {}
for _, name in raw_pairs({ 'tobit', 'bnot', 'band', 'bor', 'bxor', 'lshift', 'rshift', 'arshift',
    'rol', 'ror', 'bswap', 'tohex' }) do
    bits[name] = host['bit_' .. name]
end

local redis = {
    LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
    REDIS_VERSION = host.version, REDIS_VERSION_NUM = host.version_number,
}

redis.call = host.call
redis.pcall = host.pcall
redis.setresp = host.setresp
redis.log = host.log
redis.sha1hex = host.sha1hex
redis.set_repl = host.set_repl
redis.acl_check_cmd = host.acl_check_cmd
redis.error_reply = host.error_reply

function redis.status_reply(...)
    local text = ...
    if select('#', ...) ~= 1 or type(text) ~= 'string' then
        return { err = 'ERR wrong number or type of arguments' }
    end
    return { ok = text }
end

function redis.breakpoint() return false end
function redis.debug() end
function redis.replicate_commands() return true end

local function nonexistent(_, name)
    if type(name) ~= 'string' and type(name) ~= 'number' then name = tostring(name) end
    error("Script attempted to access nonexistent global variable '" .. name .. "'", 2)
end

local protected_strings = protect(strings)
G.string, G.table, G.math, G.coroutine = protected_strings, protect(tables), protect(maths), protect(co)
G.cjson, G.cmsgpack, G.struct, G.bit = protect(json), protect(msgpack), protect(structs), protect(bits)
G.redis = protect(redis)

-- Methods of strings are those of the table, and their metatable cannot be changed either.
local of_strings = raw_getmetatable('')
of_strings.__index = strings
local shown_of_strings = protect({ __index = protected_strings })
of_strings.__metatable = shown_of_strings

setmetatable(G, { __index = nonexistent })
local env, env_meta = protect(G)
rawset(G, '_G', env)
function G.__redis__err__handler(err) return handler(err) end

-- Functions of libraries see no KEYS and ARGV, and nothing of debugging.
local function_redis = {}
for name, value in raw_pairs(redis) do function_redis[name] = value end
function_redis.breakpoint, function_redis.debug, function_redis.replicate_commands = nil, nil, nil
local F = {}
for name, value in raw_pairs(G) do F[name] = value end
F.redis = protect(function_redis)
setmetatable(F, { __index = nonexistent })
local function_env, function_meta = protect(F)
rawset(F, '_G', function_env)

-- While a library is loaded, its code sees nothing but this.
local load_redis = { register_function = host.register_function, log = redis.log,
    REDIS_VERSION = redis.REDIS_VERSION, REDIS_VERSION_NUM = redis.REDIS_VERSION_NUM,
    LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3 }
setmetatable(load_redis, { __index = nonexistent })
local L = setmetatable({ redis = protect(load_redis) }, { __index = nonexistent })

-- Nothing is left in the table of globals that Lua itself made.
for name in raw_pairs(real_globals) do real_globals[name] = nil end

local function run(f) return raw_xpcall(f, handler) end

local function run_eval(f, keys, args)
    rawset(G, 'KEYS', keys)
    rawset(G, 'ARGV', args)
    return raw_xpcall(f, handler)
end

local function run_function(f, keys, args)
    return raw_xpcall(function() return f(keys, args) end, handler)
end

local function load_library(f)
    function_meta.__index = L
    local ok, err = raw_pcall(f)
    function_meta.__index = F
    if not ok and not ends(err) and type(err) == 'userdata' then
        local value = raised()
        if value ~= nil then err = value end
    end
    return ok, err
end

return env, function_env, run_eval, run_function, load_library
