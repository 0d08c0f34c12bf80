//! The command line, and the cells of a table.

use std::fmt;

pub const HELP: &str = "\
plain_client ADDRESS=PID... [OPTION VALUE]...
plain_client --perdura FILE --redis FILE [--valkey FILE] --directory DIR [OPTION VALUE]...
plain_client --perdura FILE --budgets SIZE,... --directory DIR [OPTION VALUE]...

Measures servers in turn, in short rounds, and prints ratios of operations a second and of the
servers' own processor time, and latencies. ADDRESS is host:port, PID the server's process; ratios
refer to the last server, and those of a Perdura that is started to each other server. With
--perdura and --redis both servers are started, and the whole table is measured: `warned` beside no persistence, then `fsync` beside `appendfsync always`. With
--budgets a Perdura is started for each budget, and one cell is measured.

  --command NAME      set, get, incr, hset (fields of one hash), hset10 (hashes of 10 fields), zadd
                      (members of one set), mset (10 keys), or any other of redis-benchmark's list:
                      ping_inline, ping_mbulk, lpush, rpush, lpop, rpop, sadd, spop, zpopmin,
                      lrange_100, lrange_300, lrange_500, lrange_600    [set; table: all]
  --list yes|no       instead of the table, all of redis-benchmark's list, with 1 client at pipeline
                      1 and with 50 clients at pipelines 1 and 16       [no]
  --part N/OF         only this part of the table, which ends sooner    [1/1]
  --load SHARE        also latencies at equal load: batches are due at random times, at this share
                      of the slowest server's rate, and a latency begins when its batch is due
  --value N           bytes of a value                                  [1024; table: 64 and 1024]
  --clients N         connections                                       [50; table: 1, 8, 50, 200]
  --pipeline N        commands of a batch                               [16; table: 1 and 16]
  --durable yes|no    only the part of the table with, or without, commits that are waited for
  --keys N            keys, fields or members, each as likely           [1000000]
  --rounds N          rounds; each measures every server once           [9]
  --seconds S         length of one measurement, seconds                [0.4]
  --pause-ms N        rest before each measurement                      [100]
  --fill yes|no       whether everything is written once before         [yes]
  --memory SIZE       memory of a Perdura that is started               [3GiB]
  --budget SIZE       budget of a Perdura that is started               [11%]
  --threads N         event loops of a Perdura that is started          [as many as processors]
  --port N            first of three ports for servers that are started [7601]
  --json FILE         also writes all rounds as JSON

A table that is asked for one command, value, number of clients or pipeline has the cells with it.
Build with --release.";

/// What the words of the command line say.
pub struct Settings {
    pub servers: Servers,
    pub cells: Vec<Cell>,
    pub keys: u32,
    pub rounds: usize,
    pub seconds: f64,
    pub pause_ms: u64,
    pub fill: bool,
    pub memory: String,
    pub budget: String,
    pub threads: Option<String>,
    pub load: Option<f64>,
    pub port: u16,
    pub json: Option<String>,
}

/// The servers that are measured.
pub enum Servers {
    /// Servers that run already: address and process.
    Running(Vec<(String, u32)>),
    /// A Perdura, a Redis and perhaps a Valkey, by their programs, with their data in a directory.
    Started { perdura: String, redis: String, valkey: Option<String>, directory: String },
    /// Several of one Perdura, which differ by their budget.
    Budgets { perdura: String, budgets: Vec<String>, directory: String },
}

/// One cell of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    pub command: String,
    pub value_bytes: usize,
    pub pipeline: usize,
    pub clients: usize,
    /// Whether a reply waits until the write is durable.
    pub durable: bool,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, value_bytes, pipeline, clients, durable } = self;
        let mode = if *durable { "fsync " } else { "" };
        write!(f, "{mode}{command} {value_bytes} B, P{pipeline}, {clients} clients")
    }
}

impl Settings {
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let mut settings = Self {
            servers: Servers::Running(Vec::new()),
            cells: Vec::new(),
            keys: 1_000_000,
            rounds: 9,
            seconds: 0.4,
            pause_ms: 100,
            fill: true,
            memory: "3GiB".into(),
            budget: "11%".into(),
            threads: None,
            load: None,
            port: 7601,
            json: None,
        };
        let (mut running, mut wanted) = (Vec::new(), Wanted::default());
        let (mut perdura, mut redis, mut budgets, mut directory) = (None, None, None, None);
        let (mut valkey, mut is_list, mut part) = (None, false, (1, 1));
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if let Some((address, pid)) = word.split_once('=') {
                running.push((address.into(), number(pid)?));
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word} has no value"))?;
            match word.as_str() {
                "--command" => {
                    wanted.command = Some(one_of(value, &[TABLE, LIST].concat())?.to_uppercase())
                }
                "--value" => wanted.value_bytes = Some(number(value)?),
                "--clients" => wanted.clients = Some(number(value)?),
                "--pipeline" => wanted.pipeline = Some(number(value)?),
                "--durable" => wanted.durable = Some(one_of(value, &["yes", "no"])? == "yes"),
                "--keys" => settings.keys = number(value)?,
                "--list" => is_list = one_of(value, &["yes", "no"])? == "yes",
                "--part" => {
                    let (nth, of) = value.split_once('/').ok_or("--part wants N/OF")?;
                    part = (number::<usize>(nth)?, number::<usize>(of)?);
                }
                "--valkey" => valkey = Some(value.clone()),
                "--threads" => settings.threads = Some(value.clone()),
                "--load" => settings.load = Some(number(value)?),
                "--rounds" => settings.rounds = number(value)?,
                "--seconds" => settings.seconds = number(value)?,
                "--pause-ms" => settings.pause_ms = number(value)?,
                "--fill" => settings.fill = one_of(value, &["yes", "no"])? == "yes",
                "--memory" => settings.memory = value.clone(),
                "--budget" => settings.budget = value.clone(),
                "--port" => settings.port = number(value)?,
                "--json" => settings.json = Some(value.clone()),
                "--perdura" => perdura = Some(value.clone()),
                "--redis" => redis = Some(value.clone()),
                "--budgets" => budgets = Some(value.split(',').map(str::to_owned).collect()),
                "--directory" => directory = Some(value.clone()),
                other => return Err(format!("there is no option {other}")),
            }
        }
        (settings.servers, settings.cells) = match (perdura, redis, budgets, directory) {
            (Some(perdura), Some(redis), None, Some(directory)) if running.is_empty() => {
                let cells = if is_list { list() } else { table() };
                let cells: Vec<_> = cells.into_iter().filter(|cell| wanted.takes(cell)).collect();
                let (nth, of) = part;
                if nth == 0 || nth > of {
                    return Err(format!("there is no part {nth} of {of}"));
                }
                // Parts are neighbours in the list, so that few of them write the same data.
                let at = |nth: usize| cells.len() * nth / of;
                let cells = cells[at(nth - 1)..at(nth)].to_vec();
                (Servers::Started { perdura, redis, valkey, directory }, cells)
            }
            (Some(perdura), None, Some(budgets), Some(directory)) if running.is_empty() => {
                (Servers::Budgets { perdura, budgets, directory }, vec![wanted.cell()])
            }
            (None, None, None, None) if !running.is_empty() => {
                (Servers::Running(running), vec![wanted.cell()])
            }
            _ => {
                let ways =
                    "servers that run, or a Perdura with a Redis or budgets, and a directory";
                return Err(format!("expected {ways}"));
            }
        };
        let counts = |cell: &Cell| [cell.clients, cell.pipeline, cell.value_bytes].contains(&0);
        if settings.cells.is_empty() || settings.cells.iter().any(counts) {
            return Err("no cell of the table is wanted, or a number is 0".into());
        }
        if settings.keys < 10 || settings.rounds == 0 || settings.seconds <= 0.0 {
            return Err("expected at least 10 keys, a round and a time".into());
        }
        Ok(settings)
    }
}

/// The parts of a cell that the command line names.
#[derive(Default)]
struct Wanted {
    command: Option<String>,
    value_bytes: Option<usize>,
    pipeline: Option<usize>,
    clients: Option<usize>,
    durable: Option<bool>,
}

impl Wanted {
    fn takes(&self, cell: &Cell) -> bool {
        self.command.as_ref().is_none_or(|command| *command == cell.command)
            && self.value_bytes.is_none_or(|bytes| bytes == cell.value_bytes)
            && self.pipeline.is_none_or(|pipeline| pipeline == cell.pipeline)
            && self.clients.is_none_or(|clients| clients == cell.clients)
            && self.durable.is_none_or(|durable| durable == cell.durable)
    }

    fn cell(self) -> Cell {
        Cell {
            command: self.command.unwrap_or("SET".into()),
            value_bytes: self.value_bytes.unwrap_or(1024),
            pipeline: self.pipeline.unwrap_or(16),
            clients: self.clients.unwrap_or(50),
            durable: self.durable.unwrap_or(false),
        }
    }
}

/// All cells: each command with 50 clients, and SET with fewer and more clients.
fn table() -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut add = |command: &str, value_bytes, pipeline, clients, durable| {
        let command = command.to_uppercase();
        cells.push(Cell { command, value_bytes, pipeline, clients, durable });
    };
    for pipeline in [1, 16] {
        for command in TABLE {
            for value_bytes in [64, 1024] {
                if value_bytes == 64 || ["set", "get", "hset10"].contains(command) {
                    add(command, value_bytes, pipeline, 50, false);
                }
            }
        }
        for clients in [1, 8, 200] {
            for value_bytes in [64, 1024] {
                add("set", value_bytes, pipeline, clients, false);
            }
            add("get", 64, pipeline, clients, false);
        }
        for clients in [1, 50, 200] {
            for value_bytes in [64, 1024] {
                add("set", value_bytes, pipeline, clients, true);
            }
        }
        for command in ["incr", "hset", "zadd"] {
            add(command, 64, pipeline, 50, true);
        }
    }
    cells
}

/// The commands of `redis-benchmark`. The size of the values makes no difference to some.
fn list() -> Vec<Cell> {
    let mut cells = Vec::new();
    for command in LIST {
        let has_value = !WITHOUT_VALUE.contains(command);
        for value_bytes in [64, 1024].into_iter().filter(|bytes| has_value || *bytes == 64) {
            for (pipeline, clients) in [(1, 1), (1, 50), (16, 50)] {
                let command = command.to_uppercase();
                cells.push(Cell { command, value_bytes, pipeline, clients, durable: false });
            }
        }
    }
    cells
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word:?} is not such a number"))
}

fn one_of(word: &str, words: &[&str]) -> Result<String, String> {
    match words.contains(&word) {
        true => Ok(word.into()),
        false => Err(format!("{word:?} is not one of {}", words.join(", "))),
    }
}

/// Commands of the table.
const TABLE: &[&str] = &["set", "get", "incr", "hset", "hset10", "zadd", "mset"];
/// Commands of `redis-benchmark`.
const LIST: &[&str] = &[
    "ping_inline",
    "ping_mbulk",
    "set",
    "get",
    "incr",
    "lpush",
    "rpush",
    "lpop",
    "rpop",
    "sadd",
    "hset",
    "spop",
    "zadd",
    "zpopmin",
    "lrange_100",
    "lrange_300",
    "lrange_500",
    "lrange_600",
    "mset",
];
/// Commands of `redis-benchmark` that neither send nor get a value of the size that is asked for.
const WITHOUT_VALUE: &[&str] =
    &["ping_inline", "ping_mbulk", "incr", "sadd", "spop", "zadd", "zpopmin"];
