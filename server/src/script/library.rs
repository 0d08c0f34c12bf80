//! Libraries of functions: what is known of them outside of any Lua state.

use std::collections::BTreeMap;
use std::sync::Arc;

use mlua::Value;

use super::bind::{Answer, Arguments, Failure};
use super::shebang::{Flags, check_name};
use super::values;

/// A library.
#[derive(Debug)]
pub(crate) struct Library {
    pub name: String,
    /// All of its code, with its first line.
    pub code: Vec<u8>,
    pub functions: BTreeMap<String, About>,
}

impl Library {
    /// The function of this name, in upper or lower case, with its own name.
    pub fn function(&self, name: &str) -> Option<(&String, &About)> {
        self.functions.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))
    }
}

/// What is known of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About {
    pub description: Option<Vec<u8>>,
    pub flags: Flags,
}

/// All libraries at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Libraries {
    pub by_name: BTreeMap<String, Arc<Library>>,
}

impl Libraries {
    /// The function of this name, in upper or lower case, with its library and its own name.
    pub fn function(&self, name: &str) -> Option<(&Arc<Library>, &String, &About)> {
        self.by_name
            .values()
            .find_map(|library| library.function(name).map(|(name, about)| (library, name, about)))
    }

    /// Number of functions.
    pub fn functions(&self) -> usize {
        self.by_name.values().map(|library| library.functions.len()).sum()
    }

    /// Adds a library, or takes the place of the one with its name where `replace` is set.
    ///
    /// # Errors
    /// There is such a library, or another has a function of the same name. Nothing has changed.
    pub fn add(&mut self, library: Library, replace: bool) -> Result<(), String> {
        if !replace && self.by_name.contains_key(&library.name) {
            return Err(format!("Library '{}' already exists", library.name));
        }
        let others = || self.by_name.values().filter(|other| other.name != library.name);
        let is_taken = |name: &&String| others().any(|other| other.function(name).is_some());
        if let Some(name) = library.functions.keys().find(is_taken) {
            return Err(format!("Function {name} already exists"));
        }
        self.by_name.insert(library.name.clone(), Arc::new(library));
        Ok(())
    }
}

/// A function that a library's code has registered.
#[derive(Debug)]
pub(crate) struct Registered {
    pub name: String,
    pub about: About,
    pub callback: mlua::Function,
}

fn refused(args: &Arguments<'_>, text: &str) -> Failure {
    match values::error(args.lua, format!("ERR {text}").as_bytes()) {
        Ok(table) => Failure::Value(Value::Table(table)),
        Err(error) => Failure::Lua(error),
    }
}

/// `redis.register_function`
pub(crate) fn register(args: &Arguments<'_>) -> Answer {
    let mut registering = args.state.registering.borrow_mut();
    let Some(all) = registering.as_mut() else {
        let text = "redis.register_function can only be called on FUNCTION LOAD command";
        return Err(refused(args, text));
    };
    let new = match args.len() {
        1 => named(args),
        2 => positional(args),
        _ => Err(refused(args, "wrong number of arguments to redis.register_function")),
    }?;
    check_name(new.name.as_bytes()).map_err(|why| refused(args, &why))?;
    if all.iter().any(|other| other.name.eq_ignore_ascii_case(&new.name)) {
        return Err(refused(args, "Function already exists in the library"));
    }
    all.push(new);
    Ok(Vec::new())
}

fn text_of(args: &Arguments<'_>, value: &Value) -> Result<Option<Vec<u8>>, Failure> {
    match value {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => {
            let text = args.lua.coerce_string(value.clone())?;
            Ok(text.map(|text| text.as_bytes().to_vec()))
        }
        _ => Ok(None),
    }
}

fn positional(args: &Arguments<'_>) -> Result<Registered, Failure> {
    let Some(name) = text_of(args, args.get(0))? else {
        return Err(refused(args, "first argument to redis.register_function must be a string"));
    };
    let Value::Function(callback) = args.get(1) else {
        return Err(refused(args, "second argument to redis.register_function must be a function"));
    };
    let about = About { description: None, flags: Flags::default() };
    let name = String::from_utf8_lossy(&name).into_owned();
    Ok(Registered { name, about, callback: callback.clone() })
}

fn named(args: &Arguments<'_>) -> Result<Registered, Failure> {
    let Value::Table(given) = args.get(0) else {
        return Err(refused(
            args,
            "calling redis.register_function with a single argument is only applicable to Lua \
             table (representing named arguments).",
        ));
    };
    let (mut name, mut callback) = (None, None);
    let mut about = About { description: None, flags: Flags::default() };
    for pair in given.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Some(key) = text_of(args, &key)? else {
            let text = "named argument key given to redis.register_function is not a string";
            return Err(refused(args, text));
        };
        match key.to_ascii_lowercase().as_slice() {
            b"function_name" => {
                let Some(text) = text_of(args, &value)? else {
                    let text = "function_name argument given to redis.register_function must be \
                                a string";
                    return Err(refused(args, text));
                };
                name = Some(String::from_utf8_lossy(&text).into_owned());
            }
            b"description" => {
                let Some(text) = text_of(args, &value)? else {
                    let text = "description argument given to redis.register_function must be a \
                                string";
                    return Err(refused(args, text));
                };
                about.description = Some(text);
            }
            b"callback" => {
                let Value::Function(function) = value else {
                    let text = "callback argument given to redis.register_function must be a \
                                function";
                    return Err(refused(args, text));
                };
                callback = Some(function);
            }
            b"flags" => {
                let Value::Table(flags) = value else {
                    let text = "flags argument to redis.register_function must be a table \
                                representing function flags";
                    return Err(refused(args, text));
                };
                for at in 1.. {
                    let flag = flags.raw_get::<Value>(at)?;
                    if flag.is_nil() {
                        break;
                    }
                    let flag = text_of(args, &flag)?.map(|name| name.to_ascii_lowercase());
                    let flag = flag.as_deref().and_then(Flags::named);
                    about.flags.add(flag.ok_or_else(|| refused(args, "unknown flag given"))?);
                }
            }
            _ => {
                let text = "unknown argument given to redis.register_function";
                return Err(refused(args, text));
            }
        }
    }
    let Some(name) = name else {
        let text = "redis.register_function must get a function name argument";
        return Err(refused(args, text));
    };
    let Some(callback) = callback else {
        let text = "redis.register_function must get a callback argument";
        return Err(refused(args, text));
    };
    Ok(Registered { name, about, callback })
}
