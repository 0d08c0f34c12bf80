//! How functions in Rust are shown to the prelude: they return true and their results, or false and
//! what the prelude raises as an error.

use std::rc::Rc;

use mlua::{IntoLua, Lua, MultiValue, Table, Value};

use super::host::State;

/// Why a function has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A text, before which the prelude puts the place in the script.
    Text(String),
    /// A value to be raised as it is.
    Value(Value),
    /// Lua itself has failed, for want of memory: the script is over.
    Lua(mlua::Error),
}

impl From<mlua::Error> for Failure {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(error)
    }
}

/// The results of a function.
pub(crate) type Answer = Result<Vec<Value>, Failure>;

/// A function for scripts.
pub(crate) type Function = fn(&Arguments<'_>) -> Answer;

/// The arguments of a call, with its state.
pub(crate) struct Arguments<'a> {
    pub lua: &'a Lua,
    pub state: &'a State,
    pub name: &'static str,
    pub values: Vec<Value>,
}

impl Arguments<'_> {
    /// Number of arguments.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// The argument at `index`, from 0; nil beyond the last one.
    pub fn get(&self, index: usize) -> &Value {
        self.values.get(index).unwrap_or(&Value::Nil)
    }

    /// Whether the argument is missing or nil.
    pub fn is_none(&self, index: usize) -> bool {
        self.get(index).is_nil()
    }

    /// The failure of a call with a wrong argument.
    pub fn wrong(&self, index: usize, why: impl std::fmt::Display) -> Failure {
        Failure::Text(format!("bad argument #{} to '{}' ({why})", index + 1, self.name))
    }

    fn mistyped(&self, index: usize, wanted: &str) -> Failure {
        let got = match self.values.get(index) {
            None => "no value",
            Some(value) => type_name(value),
        };
        self.wrong(index, format_args!("{wanted} expected, got {got}"))
    }

    /// The argument as a string; a number is taken as its text.
    pub fn string(&self, index: usize) -> Result<mlua::String, Failure> {
        match self.lua.coerce_string(self.get(index).clone())? {
            Some(string) if !self.is_none(index) => Ok(string),
            _ => Err(self.mistyped(index, "string")),
        }
    }

    /// The argument as a number; a string that spells one is taken.
    pub fn number(&self, index: usize) -> Result<f64, Failure> {
        match self.lua.coerce_number(self.get(index).clone())? {
            Some(number) if !self.is_none(index) => Ok(number),
            _ => Err(self.mistyped(index, "number")),
        }
    }

    /// The argument as a whole number, as C casts it.
    pub fn int(&self, index: usize) -> Result<i64, Failure> {
        self.number(index).map(to_int)
    }

    /// The argument as a whole number, or `default` where it is missing.
    pub fn int_or(&self, index: usize, default: i64) -> Result<i64, Failure> {
        if self.is_none(index) { Ok(default) } else { self.int(index) }
    }
}

/// A number as C casts it to 64 bits: what does not fit becomes the lowest.
pub(crate) fn to_int(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&number) { number as i64 } else { i64::MIN }
}

/// The number that a value is, if it is one.
pub(crate) fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(int) => Some(*int as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// Lua's name for the type of a value.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "boolean",
        Value::Integer(_) | Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Table(_) => "table",
        Value::Function(_) => "function",
        Value::Thread(_) => "thread",
        _ => "userdata",
    }
}

/// How a function tells the prelude of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Telling {
    /// It raises an error. The value of the error waits in the state until somebody catches it:
    /// Rust can raise no value of Lua.
    Raises,
    /// It returns true before its results, or false and the value. The prelude raises the error
    /// itself, from the script's point of view.
    Returns,
}

/// Adds a function to the table that the prelude gets.
pub(crate) fn add(
    lua: &Lua,
    host: &Table,
    state: &Rc<State>,
    (name, function): (&'static str, Function),
    telling: Telling,
) -> mlua::Result<()> {
    let state = Rc::clone(state);
    let spoken = name.split_once('_').map_or(name, |(_, spoken)| spoken);
    let called = lua.create_function(move |lua, values: MultiValue| {
        let arguments = Arguments { lua, state: &state, name: spoken, values: values.into_vec() };
        let answer = match function(&arguments) {
            Ok(values) if values.len() > RESULTS_MAX => {
                Err(Failure::Text("too many results".to_owned()))
            }
            answer => answer,
        };
        match (answer, telling) {
            (Ok(values), Telling::Raises) => Ok(MultiValue::from_vec(values)),
            (Ok(mut values), Telling::Returns) => {
                values.insert(0, Value::Boolean(true));
                Ok(MultiValue::from_vec(values))
            }
            (Err(Failure::Lua(error)), _) => Err(error),
            (Err(Failure::Text(text)), Telling::Raises) => {
                let text = format!("{}{text}", place_of_caller(lua));
                Err(raise(&state, text.into_lua(lua)?))
            }
            (Err(Failure::Value(value)), Telling::Raises) => Err(raise(&state, value)),
            (Err(Failure::Text(text)), Telling::Returns) => {
                Ok(MultiValue::from_vec(vec![Value::Boolean(false), text.into_lua(lua)?]))
            }
            (Err(Failure::Value(value)), Telling::Returns) => {
                Ok(MultiValue::from_vec(vec![Value::Boolean(false), value]))
            }
        }
    })?;
    host.raw_set(name, called)
}

/// The error that ends a callback so that `value` is raised.
pub(crate) fn raise(state: &State, value: Value) -> mlua::Error {
    state.raised.replace(Some(value));
    mlua::Error::runtime("an error of a script")
}

/// Where the function that runs was called, as it begins the texts of errors.
fn place_of_caller(lua: &Lua) -> String {
    let place = lua.inspect_stack(1, |debug| {
        let source = debug.source();
        let line = debug.current_line().filter(|_| source.what != "C")?;
        Some(format!("{}:{line}: ", source.short_src?))
    });
    place.flatten().unwrap_or_default()
}

/// Most results of a function: Lua's stack has a few more.
pub(crate) const RESULTS_MAX: usize = 7000;
