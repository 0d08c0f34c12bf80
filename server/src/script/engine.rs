//! A Lua state, with the scripts and the libraries that it has compiled.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use mlua::{Function, HookTriggers, Lua, LuaOptions, StdLib, Table, Value, VmState};

use super::bind::Telling;
use super::host::{Host, State, Stop};
use super::library::{Libraries, Library};
use super::names::Names;
use super::random::Rand48;
use super::{Sha, api, bind, bits, json, msgpack, replies, shebang, strings, structs};
use crate::resp::{Args, Reply};
use crate::script::Flags;

/// Instructions between two looks at the time.
const INSTRUCTIONS_PER_LOOK: u32 = 1000;
/// Most scripts that a state keeps compiled.
const COMPILED_MAX: usize = 1000;
/// Growth of the memory in use, in percent, after which the collector begins anew. Lua collects
/// nothing when it meets the limit, so garbage must stay well below it.
const COLLECT_AT_PERCENT: i32 = 150;

/// What a script is given.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    /// The name in errors: the digest of a script, or a function's name.
    pub name: &'a str,
    /// All words of the command: its keys follow the third, then come the other arguments.
    pub words: Args<'a>,
    /// Number of keys.
    pub keys: usize,
    /// The seed of `math.random`.
    pub seed: u32,
}

/// How a script ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It is answered, perhaps with its own error.
    Answered,
    /// It was stopped. Nothing of its reply counts.
    Stopped(Stop),
}

/// Why a library was not loaded.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// Its code or what it registers is wrong.
    Wrong(String),
    /// It needed too much time or memory.
    Stopped(Stop),
}

/// A Lua state, which one thread uses.
pub(crate) struct Engine {
    lua: Lua,
    state: Rc<State>,
    environment: Table,
    function_environment: Table,
    run_eval: Function,
    run_function: Function,
    load_library: Function,
    scripts: HashMap<Sha, (Function, Flags)>,
    libraries: BTreeMap<String, Loaded>,
    /// Whether the state has had no memory left, and is not to be used again.
    is_spent: bool,
}

struct Loaded {
    library: Arc<Library>,
    functions: BTreeMap<String, Function>,
}

impl Engine {
    /// Makes a state that uses at most so many bytes.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(memory_max: usize) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let state = Rc::new(State::new(Names::new(&lua)?));
        state.memory_max.set(memory_max);
        let host = lua.create_table()?;
        let groups: [&[(&'static str, bind::Function)]; 6] = [
            &api::FUNCTIONS,
            &bits::FUNCTIONS,
            &json::FUNCTIONS,
            &msgpack::FUNCTIONS,
            &strings::FUNCTIONS,
            &structs::FUNCTIONS,
        ];
        for function in groups.into_iter().flatten() {
            bind::add(&lua, &host, &state, *function, Telling::Raises)?;
        }
        for function in &strings::FOR_PRELUDE {
            bind::add(&lua, &host, &state, *function, Telling::Returns)?;
        }
        api::add_special(&lua, &host, &state)?;
        let globals = lua.globals();
        let base = lua.create_table()?;
        globals.for_each(|name: Value, value: Value| base.raw_set(name, value))?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name(super::PRELUDE);
        type Made = (Table, Table, Function, Function, Function);
        let made: Made = prelude.call((host, base, globals))?;
        let (environment, function_environment, run_eval, run_function, load_library) = made;
        lua.set_globals(environment.clone())?;
        let of = Rc::clone(&state);
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_PER_LOOK);
        lua.set_global_hook(triggers, move |_, _| match of.is_over() {
            true => Err(mlua::Error::runtime("the script is over")),
            false => Ok(VmState::Continue),
        })?;
        lua.gc_set_pause(COLLECT_AT_PERCENT);
        lua.set_memory_limit(lua.used_memory() + memory_max)?;
        Ok(Self {
            lua,
            state,
            environment,
            function_environment,
            run_eval,
            run_function,
            load_library,
            scripts: HashMap::new(),
            libraries: BTreeMap::new(),
            is_spent: false,
        })
    }

    /// Whether another state has to take the place of this one.
    pub fn is_spent(&self) -> bool {
        self.is_spent
    }

    /// Most bytes that the state may use.
    pub fn memory_max(&self) -> usize {
        self.state.memory_max.get()
    }

    /// Bytes that the state uses.
    pub fn memory_bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// The flags of a script that is compiled.
    pub fn flags_of(&self, sha: &Sha) -> Option<Flags> {
        self.scripts.get(sha).map(|(_, flags)| *flags)
    }

    /// Compiles a script.
    ///
    /// # Errors
    /// The script is wrong; the text is that of the reply.
    pub fn compile(&mut self, sha: Sha, code: &[u8]) -> Result<Flags, String> {
        if let Some(flags) = self.flags_of(&sha) {
            return Ok(flags);
        }
        let (flags, from) = shebang::script(code).map_err(|why| format!("ERR {why}"))?;
        if self.scripts.len() >= COMPILED_MAX {
            self.scripts.clear();
        }
        let function = self
            .chunk(&code[from..], "@user_script", &self.environment)
            .map_err(|why| format!("ERR Error compiling script (new function): {why}"))?;
        self.scripts.insert(sha, (function, flags));
        Ok(flags)
    }

    fn chunk(&self, code: &[u8], name: &str, environment: &Table) -> Result<Function, String> {
        let code = if code.first() == Some(&0x1b) { b"\\27" } else { code };
        let chunk = self.lua.load(code).set_name(name);
        chunk.set_environment(environment.clone()).into_function().map_err(|error| match error {
            mlua::Error::SyntaxError { message, .. } => message,
            other => other.to_string(),
        })
    }

    /// Runs a script that is compiled.
    pub fn eval(
        &mut self,
        host: &mut dyn Host,
        sha: &Sha,
        input: Input<'_>,
        reply: &mut Reply<'_>,
    ) -> Ended {
        let Some((function, _)) = self.scripts.get(sha) else {
            reply.error(&"NOSCRIPT No matching script. Please use EVAL.");
            return Ended::Answered;
        };
        let (function, run) = (function.clone(), self.run_eval.clone());
        self.run(host, &run, function, input, reply)
    }

    /// Calls a function of a library that is loaded.
    pub fn call(
        &mut self,
        host: &mut dyn Host,
        library: &str,
        input: Input<'_>,
        reply: &mut Reply<'_>,
    ) -> Ended {
        let loaded = self.libraries.get(library);
        let Some(function) = loaded.and_then(|loaded| loaded.functions.get(input.name)) else {
            reply.error(&"ERR Function not found");
            return Ended::Answered;
        };
        let (function, run) = (function.clone(), self.run_function.clone());
        self.run(host, &run, function, input, reply)
    }

    fn run(
        &mut self,
        host: &mut dyn Host,
        run: &Function,
        function: Function,
        input: Input<'_>,
        reply: &mut Reply<'_>,
    ) -> Ended {
        self.make_room();
        let state = Rc::clone(&self.state);
        state.begin(Rand48::seeded(input.seed as i32));
        let mark = reply.mark();
        let outcome = state.host.lend(host, || {
            let mut words = input.words.from(3);
            let mut list = |count: usize| {
                let table = self.lua.create_table_with_capacity(count, 0)?;
                for (at, word) in words.by_ref().take(count).enumerate() {
                    table.raw_set(at + 1, self.lua.create_string(word)?)?;
                }
                Ok::<_, mlua::Error>(table)
            };
            let others = input.words.len().saturating_sub(3 + input.keys);
            let (keys, args) = (list(input.keys)?, list(others)?);
            let (ok, value): (bool, Value) = run.call((function, keys, args))?;
            match ok {
                true => replies::write(&state, &value, reply)?,
                false => self.write_error(&value, input.name, reply)?,
            }
            Ok::<_, mlua::Error>(())
        });
        if let Err(error) = outcome {
            self.note_failure(&error);
            if state.stopped().is_none() {
                reply.rewind(mark);
                let name = input.name;
                reply.error(&format_args!("ERR Error running script {name}, {error}"));
            }
        }
        match state.stopped() {
            None => Ended::Answered,
            Some(stop) => {
                reply.rewind(mark);
                self.is_spent |= stop == Stop::Memory;
                Ended::Stopped(stop)
            }
        }
    }

    /// Writes the error with which a script has ended, unless it was stopped.
    fn write_error(&self, error: &Value, name: &str, reply: &mut Reply<'_>) -> mlua::Result<()> {
        match error {
            Value::Table(table) => {
                let mut text = replies::error_text(table)?.unwrap_or_default();
                let source: Option<String> = table.raw_get("source")?;
                let line: Option<i64> = table.raw_get("line")?;
                if let (Some(source), Some(line)) = (source, line) {
                    text.extend(format!(" script: {name}, on {source}:{line}.").into_bytes());
                }
                reply.error_bytes(&text);
            }
            Value::Error(error) => {
                self.note_failure(error);
                reply.error(&format_args!("ERR Error running script {name}, {error}"));
            }
            Value::String(text) if &*text.as_bytes() == b"not enough memory" => {
                self.state.stop(Stop::Memory);
            }
            Value::String(text) => {
                let text = text.to_string_lossy();
                let text: String = text.chars().take(100).collect();
                reply.error(&format_args!("ERR Error running script {name}, {text}"));
            }
            _ => reply.error(&format_args!("ERR Error running script {name}, execution failure")),
        }
        Ok(())
    }

    /// Notes an error of Lua that ends a script: without one, the memory was used up.
    fn note_failure(&self, error: &mlua::Error) {
        if is_memory(error) {
            self.state.stop(Stop::Memory);
        }
    }

    /// Frees what the scripts so far have left, before it takes what the next one may use.
    fn make_room(&mut self) {
        let half = self.state.memory_max.get() / 2;
        // Once what scripts have left; if that is not enough, what is compiled, too.
        for forget in [false, true] {
            if self.lua.used_memory() <= half {
                return;
            }
            if forget {
                self.scripts.clear();
            }
            if self.lua.gc_collect().is_err() {
                self.is_spent = true;
            }
        }
        self.is_spent |= self.lua.used_memory() > half;
    }

    /// Runs the code of a library, and returns what it registers.
    ///
    /// # Errors
    /// The code is wrong, or needs too much time or memory.
    pub fn load(
        &mut self,
        host: &mut dyn Host,
        code: &[u8],
    ) -> Result<(Library, BTreeMap<String, Function>), LoadError> {
        let wrong = LoadError::Wrong;
        let (name, from) = shebang::library(code).map_err(wrong)?;
        let function = self
            .chunk(&code[from..], "@user_function", &self.function_environment)
            .map_err(|why| wrong(format!("Error compiling function: {why}")))?;
        self.state.begin(Rand48::default());
        self.state.registering.replace(Some(Vec::new()));
        let load = || self.load_library.call::<(bool, Value)>(function);
        let outcome = self.state.host.lend(host, load);
        let registered = self.state.registering.take().unwrap_or_default();
        match &outcome {
            Err(error) => self.note_failure(error),
            Ok((false, Value::Error(error))) => self.note_failure(error),
            Ok(_) => {}
        }
        if let Some(stop) = self.state.stopped() {
            self.is_spent |= stop == Stop::Memory;
            return Err(LoadError::Stopped(stop));
        }
        let failed = |text: String| wrong(format!("Error registering functions: {text}"));
        match outcome {
            Ok((true, _)) => {}
            Ok((false, Value::Table(table))) => {
                let text = replies::error_text(&table).ok().flatten().unwrap_or_default();
                return Err(failed(String::from_utf8_lossy(&text).into_owned()));
            }
            Ok((false, Value::String(text))) => {
                return Err(failed(format!("ERR {}", text.to_string_lossy())));
            }
            Ok((false, _)) => return Err(failed("ERR execution failure".to_owned())),
            Err(error) => return Err(failed(format!("ERR {error}"))),
        }
        if registered.is_empty() {
            return Err(wrong("No functions registered".to_owned()));
        }
        let (mut about, mut functions) = (BTreeMap::new(), BTreeMap::new());
        for new in registered {
            functions.insert(new.name.clone(), new.callback);
            about.insert(new.name, new.about);
        }
        Ok((Library { name, code: code.to_vec(), functions: about }, functions))
    }

    /// Makes the libraries of this state those given: loads what is new, forgets what is gone.
    ///
    /// # Errors
    /// A library that could be loaded in another state needs too much time or memory in this one.
    pub fn take_libraries(
        &mut self,
        host: &mut dyn Host,
        libraries: &Libraries,
    ) -> Result<(), LoadError> {
        let is_same = |loaded: &Loaded| {
            let now = libraries.by_name.get(&loaded.library.name);
            now.is_some_and(|now| Arc::ptr_eq(now, &loaded.library))
        };
        self.libraries.retain(|_, loaded| is_same(loaded));
        for (name, library) in &libraries.by_name {
            if !self.libraries.contains_key(name) {
                let (_, functions) = self.load(host, &library.code)?;
                let loaded = Loaded { library: Arc::clone(library), functions };
                self.libraries.insert(name.clone(), loaded);
            }
        }
        Ok(())
    }
}

/// Whether an error says that memory was used up.
fn is_memory(error: &mlua::Error) -> bool {
    match error {
        mlua::Error::MemoryError(_) => true,
        mlua::Error::CallbackError { cause, .. } => is_memory(cause),
        _ => false,
    }
}
