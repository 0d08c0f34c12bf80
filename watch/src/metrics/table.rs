//! The families whose one sample is a field of INFO, and which field each is.
//!
//! A test asks of each number in INFO that it is here, in `mod.rs`, or in [`LEFT_OUT`].

use super::write::Kind;

/// One family.
#[derive(Debug)]
pub struct Row {
    /// Its name, without the kind's suffix.
    pub name: &'static str,
    /// Gauge or counter.
    pub kind: Kind,
    /// The field of INFO.
    pub field: &'static str,
    /// What the number in the field is divided by.
    pub divisor: f64,
    /// A sentence for operators.
    pub help: &'static str,
}

const NS: f64 = 1e9;
const US: f64 = 1e6;
const MS: f64 = 1e3;

const fn gauge(field: &'static str, name: &'static str, help: &'static str) -> Row {
    Row { name, kind: Kind::Gauge, field, divisor: 1.0, help }
}

const fn counter(field: &'static str, name: &'static str, help: &'static str) -> Row {
    Row { name, kind: Kind::Counter, field, divisor: 1.0, help }
}

const fn in_seconds(divisor: f64, row: Row) -> Row {
    Row { divisor, ..row }
}

/// All of them, in the order of the text.
#[rustfmt::skip]
pub static ROWS: &[Row] = &[
    // The promise.
    gauge("time_to_safe_seconds", "perdura_time_to_safe_seconds", "Time that a flush of the dirty data would take from now, at the proven rate."),
    gauge("time_to_safe_max_seconds", "perdura_time_to_safe_max_seconds", "The longest time to safe since the start."),
    gauge("warning_seconds", "perdura_warning_seconds", "Time from a warning to the loss of power that is counted on now."),
    gauge("promised_seconds", "perdura_promised_seconds", "Time that a flush of a full budget takes, with the reserve."),
    gauge("reserve_seconds", "perdura_reserve_seconds", "Part of the warning that is kept back for all but the writing."),
    gauge("dirty_bytes", "perdura_dirty_bytes", "Bytes that are not on the SSD yet."),
    gauge("dirty_bytes_max", "perdura_dirty_max_bytes", "The most that was dirty since the start."),
    gauge("budget_bytes", "perdura_budget_bytes", "Bytes that may be dirty."),
    gauge("budget_now_bytes", "perdura_budget_now_bytes", "Bytes that may be dirty at the moment: less than the budget while the log is nearly full."),
    gauge("proven_rate_bytes_per_s", "perdura_proven_rate_bytes_per_second", "Rate of a flush that was measured when the promise was made."),
    gauge("observed_rate_bytes_per_s", "perdura_observed_rate_bytes_per_second", "Rate of the device as ordinary work shows it; 0: not known."),
    counter("rate_samples", "perdura_observed_rate_samples", "Samples of the observed rate."),
    gauge("last_checkpoint_seconds", "perdura_checkpoint_age_seconds", "Time since the last checkpoint; absent if there was none since the start."),
    gauge("latched", "perdura_device_failed", "1 if the SSD has failed: nothing written since is durable."),
    // The power.
    gauge("power_source_lost", "perdura_power_source_lost", "1 if a source of warnings does not answer."),
    gauge("power_left_seconds", "perdura_power_left_seconds", "Time that is left by the worst source of warnings; absent if nobody knows it."),
    gauge("power_demand_met", "perdura_power_demand_met", "1 if what the power demands is done."),
    gauge("battery_seconds", "perdura_battery_seconds", "Time that the battery lasts for, as it is counted on."),
    gauge("battery_lost", "perdura_battery_lost", "1 if nothing could be learnt of the battery for a while."),
    gauge("battery_usable_joules", "perdura_battery_usable_joules", "Energy of the battery that can be used."),
    gauge("battery_load_watts", "perdura_battery_load_watts", "Load that the battery would carry."),
    gauge("battery_age_years", "perdura_battery_age_years", "Age of the battery."),
    gauge("battery_temperature_celsius", "perdura_battery_temperature_celsius", "Temperature of the battery."),
    // The way to the SSD.
    counter("dirtied_bytes", "perdura_dirtied_bytes", "Bytes that became dirty."),
    counter("dropped_bytes", "perdura_dropped_bytes", "Dirty bytes whose memory was freed before they were cleaned."),
    counter("cleaned_bytes", "perdura_cleaned_bytes", "Bytes copied by the cleaner, so that the budget is kept."),
    counter("drained_bytes", "perdura_drained_bytes", "Bytes copied for checkpoints and group commits."),
    counter("captured_bytes", "perdura_captured_bytes", "Bytes copied by writers for a checkpoint."),
    counter("compacted_bytes", "perdura_compacted_bytes", "Clean bytes copied to free segments of the log."),
    counter("compaction_read_bytes", "perdura_compaction_read_bytes", "Bytes that compaction has read from the SSD."),
    counter("device_bytes", "perdura_device_written_bytes", "Bytes written to the SSD."),
    counter("prezeroed_bytes", "perdura_prezeroed_bytes", "Zeros written to free segments ahead of the log."),
    counter("user_bytes", "perdura_user_bytes", "Bytes of keys, fields and values in write commands."),
    counter("compression_in_bytes", "perdura_compression_in_bytes", "Bytes of frames that were to be compressed."),
    counter("compression_out_bytes", "perdura_compression_out_bytes", "Bytes stored for these frames."),
    in_seconds(NS, counter("compression_cpu_ns", "perdura_compression_cpu_seconds", "Processor time of compression.")),
    counter("compressed_frames", "perdura_compressed_frames", "Frames that compression made smaller."),
    counter("frames", "perdura_frames", "Frames written."),
    counter("short_queue_frames", "perdura_short_queue_frames", "Frames written one at a time for the sake of other servers' group commits."),
    counter("device_flushes", "perdura_device_flushes", "Flushes of the SSD's cache."),
    counter("checkpoints", "perdura_checkpoints", "Checkpoints committed."),
    in_seconds(NS, counter("checkpoint_ns", "perdura_checkpoint_seconds", "Time spent in checkpoints.")),
    in_seconds(NS, gauge("cut_ns_max", "perdura_checkpoint_cut_max_seconds", "Longest time for which a checkpoint held all writers.")),
    counter("group_commits", "perdura_group_commits", "Group commits made (durability fsync)."),
    counter("group_writes", "perdura_group_writes", "Writes in group commits."),
    gauge("log_bytes", "perdura_log_bytes", "Size of the log on the SSD."),
    counter("stalls", "perdura_stalls", "Times that a writer waited for budget or a frame buffer."),
    in_seconds(NS, counter("stall_ns", "perdura_stall_seconds", "Time that writers waited.")),
    in_seconds(NS, gauge("stall_ns_max", "perdura_stall_max_seconds", "Longest wait of a writer.")),
    counter("faults", "perdura_write_faults", "Write faults taken (trap mode)."),
    counter("reprotections", "perdura_reprotections", "Pages protected again (trap mode)."),
    counter("epochs", "perdura_policy_epochs", "Epochs of the cleaning policy (trap mode)."),
    in_seconds(NS, gauge("epoch_ns_last", "perdura_policy_epoch_seconds", "Duration of the policy's last epoch (trap mode).")),
    // Memory and keys.
    gauge("used_memory", "perdura_memory_used_bytes", "Memory that values and the tables of keys take."),
    gauge("used_memory_peak", "perdura_memory_used_max_bytes", "The most memory that was in use whenever somebody looked."),
    gauge("maxmemory", "perdura_memory_limit_bytes", "Memory that values may take."),
    gauge("allocator_active", "perdura_memory_blocks_bytes", "Memory of the blocks in which values lie."),
    gauge("used_memory_rss", "perdura_process_resident_memory_bytes", "Resident memory of the process."),
    gauge("used_memory_vm_total", "perdura_scripts_memory_bytes", "Memory of the Lua states."),
    gauge("mem_clients_normal", "perdura_clients_memory_bytes", "Memory of clients' buffers."),
    counter("evicted_keys", "perdura_keys_evicted", "Keys that have gone because memory was full."),
    counter("expired_keys", "perdura_keys_expired", "Keys that have expired."),
    counter("expired_subkeys", "perdura_fields_expired", "Fields of hashes that have expired."),
    counter("keyspace_hits", "perdura_key_hits", "Keys that were looked for and found."),
    counter("keyspace_misses", "perdura_key_misses", "Keys that were looked for and not found."),
    gauge("rdb_changes_since_last_save", "perdura_changes_since_save", "Write commands since the last SAVE or BGSAVE, or the start."),
    gauge("rdb_last_save_time", "perdura_last_save_timestamp_seconds", "Unix time of the last SAVE or BGSAVE, or of the start."),
    counter("rdb_saves", "perdura_saves", "SAVE and BGSAVE commands that have succeeded."),
    gauge("loading", "perdura_loading", "1 while the image is being loaded; commands are answered all the while."),
    gauge("loading_total_bytes", "perdura_loading_wanted_bytes", "Bytes of the image, while it is being loaded."),
    gauge("loading_loaded_bytes", "perdura_loading_done_bytes", "Bytes of it that are in memory."),
    // Clients and commands.
    gauge("connected_clients", "perdura_clients", "Clients that are connected."),
    gauge("maxclients", "perdura_clients_max", "Most clients at a time."),
    gauge("blocked_clients", "perdura_clients_blocked", "Clients that wait for data, or for the end of a pause."),
    gauge("tracking_clients", "perdura_clients_tracking", "Clients that are told of changes (CLIENT TRACKING)."),
    gauge("tracking_total_keys", "perdura_tracked_keys", "Keys of which clients are told."),
    gauge("pubsub_channels", "perdura_pubsub_channels", "Channels with subscribers."),
    gauge("pubsub_patterns", "perdura_pubsub_patterns", "Patterns with subscribers."),
    counter("total_connections_received", "perdura_connections", "Connections accepted."),
    counter("rejected_connections", "perdura_connections_rejected", "Connections beyond the most clients."),
    counter("client_output_buffer_limit_disconnections", "perdura_clients_disconnected_unread", "Clients disconnected because they did not read."),
    counter("total_commands_processed", "perdura_commands_processed", "Commands carried out."),
    counter("total_error_replies", "perdura_error_replies", "Errors answered."),
    counter("total_net_input_bytes", "perdura_network_received_bytes", "Bytes read from clients."),
    counter("total_net_output_bytes", "perdura_network_sent_bytes", "Bytes written to clients."),
    counter("total_reads_processed", "perdura_socket_reads", "Times that a socket was read."),
    counter("total_writes_processed", "perdura_socket_writes", "Times that a socket was written."),
    counter("sync_full", "perdura_copies_sent", "Copies of everything that clients have asked for (SYNC)."),
    counter("eventloop_cycles", "perdura_loop_turns", "Turns of the event loops."),
    in_seconds(US, counter("eventloop_duration_sum", "perdura_loop_busy_seconds", "Time that these turns took, all loops together.")),
    in_seconds(MS, counter("expire_cycle_cpu_milliseconds", "perdura_expiry_seconds", "Time spent looking for expired keys.")),
gauge("tls_certificate_not_after", "perdura_tls_certificate_not_after_timestamp_seconds", "Unix time of the last second in which the server's certificate is valid; absent without TLS."),
    gauge("uptime_in_seconds", "perdura_uptime_seconds", "Time since the start."),
    // The backup.
    gauge("backup_enabled", "perdura_backup_enabled", "1 if the image is shipped to a vault (serve --ship)."),
    gauge("backup_stopped", "perdura_backup_stopped", "1 if nothing is shipped because another program ships this image there."),
    gauge("backup_refuses_writes", "perdura_backup_refuses_writes", "1 if writes are refused because the backup is late."),
    gauge("backup_lag_seconds", "perdura_backup_lag_seconds", "What was acknowledged longer ago is in the backup; absent before the first restore point."),
    gauge("backup_pass_seconds", "perdura_backup_pass_seconds", "Time that the last restore point took."),
    counter("backup_points", "perdura_backup_points", "Restore points that were put."),
    counter("backup_objects", "perdura_backup_objects", "Objects that were put in the vault."),
    counter("backup_bytes", "perdura_backup_shipped_bytes", "Bytes of these objects."),
    counter("backup_failures", "perdura_backup_failures", "Passes of the backup that failed."),
    counter("backup_delete_failures", "perdura_backup_delete_failures", "Times that old restore points and packs could not be deleted."),
    // Values that are not in memory.
    gauge("devices", "perdura_tier_devices", "Devices with values that are not in memory."),
    counter("far_reads", "perdura_tier_reads", "Values read from devices."),
    counter("far_reads_kept", "perdura_tier_reads_kept", "Values read that came back to memory."),
    counter("far_moved_values", "perdura_tier_moved_values", "Values moved to devices."),
    counter("far_moved_bytes", "perdura_tier_moved_bytes", "Bytes moved to devices."),
    counter("far_moved_on_values", "perdura_tier_moved_on_values", "Values moved from one device to another place."),
    counter("far_emptied_segments", "perdura_tier_emptied_segments", "Segments of devices that were emptied."),
    gauge("memory_hit_rate", "perdura_tier_memory_hit_ratio", "Share of the keys found that memory answered."),
    gauge("device_primaries", "perdura_tier_primaries", "Devices that take the values that leave memory."),
];

/// Gauges that INFO shows as -1 where they are not known.
pub static ABSENT_IF_NEGATIVE: [&str; 3] =
    ["last_checkpoint_seconds", "power_left_seconds", "backup_lag_seconds"];

/// Numbers in INFO of which no metric is made, by their names or the beginnings of these.
pub static LEFT_OUT: &[(&str, &str)] = &[
    ("redis_", "is always the same"),
    ("aof_", "is always the same, or in other metrics"),
    ("rdb_", "is about the last save only"),
    ("async_loading", "is always the same"),
    ("loading_", "follows from the two sizes"),
    ("active_defrag", "is always 0"),
    ("allocator_", "follows from other metrics"),
    ("arch_bits", "is always the same"),
    ("backup_every_seconds", "is what the operator has set"),
    ("backup_keep_seconds", "is what the operator has set"),
    ("backup_lag_max_seconds", "is what the operator has set"),
    ("backup_encrypted", "is what the operator has set"),
    ("backup_newest_unix_ms", "follows from the lag"),
    ("checkpoint_at_ns", "is the checkpoint's age"),
    ("client_recent_max", "is about one client"),
    ("clients_in_timeout_table", "is a detail of blocked clients"),
    ("cluster_", "is always 0"),
    ("connected_slaves", "is always 0: there are no replicas"),
    ("master_", "is about replicas"),
    ("second_repl_offset", "is about replicas"),
    ("repl_backlog", "is about replicas"),
    ("configured_hz", "is always the same"),
    ("current_", "is always 0"),
    ("device_activations", "is a detail of trials"),
    ("device_bytes_per_user_byte", "follows from other metrics"),
    ("device_primaries_asked", "is what the operator has set"),
    ("device_trials", "is a detail of trials"),
    ("drives", "is the number of lines below"),
    ("dump_payload_sanitizations", "is the count of RESTORE"),
    ("evicted_clients", "is always 0"),
    ("eventloop_duration_cmd_sum", "is the sum of the commands' times"),
    ("expired_", "is always 0"),
    ("far_reads_per_keyspace_hit", "follows from other metrics"),
    ("far_uses_to_return", "is a setting of the mover"),
    ("hz", "is always the same"),
    ("instantaneous_", "is the rate of a counter"),
    ("io_threads_active", "says whether there are several loops"),
    ("io_threaded_", "is always 0"),
    ("latest_fork_usec", "is always 0"),
    ("lazyfree", "would need the locks of the shards, or is always 0"),
    ("lru_clock", "is a clock"),
    ("mem_", "is always 0, or follows from other metrics"),
    ("meters", "is the number of lines below"),
    ("migrate_cached_sockets", "is always 0"),
    ("module_fork", "is always 0"),
    ("number_of_", "is about scripts"),
    ("perdura_version", "is in the build"),
    ("process_id", "is no figure"),
    ("pubsubshard_channels", "is a kind of channels for clusters"),
    ("reply_buffer_", "is always 0"),
    ("rss_overhead_", "follows from other metrics"),
    ("server_time_usec", "is a clock"),
    ("slave_expires_tracked_keys", "is always 0"),
    ("sync_partial", "is about requests that are always refused"),
    ("tcp_port", "is no figure"),
    ("total_active_defrag_time", "is always 0"),
    ("total_blocking_keys", "is a detail of blocked clients"),
    ("total_eviction_exceeded_time", "is always 0"),
    ("total_forks", "is always 0"),
    ("total_net_repl", "is always 0"),
    ("total_system_memory", "is about the machine, which others watch"),
    ("tracking_total_", "is a detail of tracking"),
    ("unexpected_error_replies", "is always 0"),
    ("uptime_in_days", "is the time in seconds"),
    ("used_cpu_", "has a label in the place of a name, or is about one thread"),
    ("used_memory_", "follows from other metrics, or is about scripts"),
    ("acl_access_denied_", "has a label in the place of a name"),
    ("run_id", "is no figure"),
];
