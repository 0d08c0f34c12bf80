//! The names of fields that values are looked at for, made once in each Lua state.

/// Strings of a Lua state.
pub(crate) struct Names {
    pub err: mlua::String,
    pub ok: mlua::String,
    pub double: mlua::String,
    pub big_number: mlua::String,
    pub verbatim_string: mlua::String,
    pub map: mlua::String,
    pub set: mlua::String,
    pub ignore: mlua::String,
}

impl Names {
    pub fn new(lua: &mlua::Lua) -> mlua::Result<Self> {
        let name = |name: &str| lua.create_string(name);
        Ok(Self {
            err: name("err")?,
            ok: name("ok")?,
            double: name("double")?,
            big_number: name("big_number")?,
            verbatim_string: name("verbatim_string")?,
            map: name("map")?,
            set: name("set")?,
            ignore: name("ignore_error_stats_update")?,
        })
    }
}
