use std::collections::BTreeSet;

use super::*;

fn seen<'l>(look: &'l Look, tenants: Option<&'l Tenants>) -> Seen<'l> {
    Seen { look, tenants, watch_cpu_s: 0.5, watch_requests: 3 }
}

fn look(info: &str) -> Look {
    Look { info: info.to_owned(), commands: Vec::new(), errors: vec![("ERR".to_owned(), 4)] }
}

#[test]
fn numbers_are_in_infos_own_digits_or_in_the_unit_of_the_name() {
    let look = look(
        "dirty_bytes:9007199254740993\r\nstall_ns:1500000000\r\nlast_checkpoint_seconds:-1.000\r\n\
         eventloop_duration_sum:2500000\r\ndb3:keys=7,expires=2,avg_ttl=0\r\nused_cpu_user:1.25\r\n\
         power_state:low\r\nfailure:\r\n",
    );
    let text = text(&seen(&look, None), Format::OpenMetrics);
    for line in [
        "perdura_dirty_bytes 9007199254740993",
        "perdura_stall_seconds_total 1.5",
        "perdura_loop_busy_seconds_total 2.5",
        "perdura_keys{db=\"3\"} 7",
        "perdura_cpu_seconds_total{mode=\"user\"} 1.25",
        "perdura_power_state{perdura_power_state=\"low\"} 1",
        "perdura_power_state{perdura_power_state=\"steady\"} 0",
        "perdura_errors_total{error=\"ERR\"} 4",
        "perdura_watch_cpu_seconds_total 0.5",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in:\n{text}");
    }
    assert!(!text.contains("perdura_checkpoint_age_seconds"), "there was no checkpoint");
    assert!(!text.contains("perdura_guard_answers"), "there is no guard");
}

#[test]
fn the_lag_of_a_backup_has_a_sample_once_there_is_a_restore_point() {
    for (lag, sample) in [("-1", None), ("0.000", Some("0.000")), ("2.500", Some("2.500"))] {
        let look = look(&format!(
            "backup_stopped:1\r\nbackup_refuses_writes:0\r\nbackup_lag_seconds:{lag}\r\n"
        ));
        let text = text(&seen(&look, None), Format::Text);
        let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        assert_eq!(of("perdura_backup_lag_seconds "), sample, "{text}");
        let two = (of("perdura_backup_stopped "), of("perdura_backup_refuses_writes "));
        assert_eq!(two, (Some("1"), Some("0")), "{text}");
    }
}

#[test]
fn devices_and_tenants_have_samples_of_their_own() {
    let look = look(
        "devices:1\r\ndevice0:state=failed,role=primary,path=/a\"b,live_bytes=1,used_bytes=2,\
         reads=3,failed_reads=4,read_bytes=5,written_bytes=6,busy_seconds=7.5\r\n",
    );
    let region = crate::tenants::Tenant {
        name: "/srv/a".into(),
        pid: None,
        is_flushing: true,
        dirty_bytes: 10,
        budget_bytes: 20,
        time_to_safe_s: 0.1,
        warning_s: 2.0,
        share_s: None,
    };
    let tenants = Tenants { error: None, battery: None, regions: vec![region] };
    let text = text(&seen(&look, Some(&tenants)), Format::Text);
    for line in [
        "perdura_tier_device_info{device=\"0\",path=\"/a\\\"b\",state=\"failed\",role=\"primary\"} 1",
        "perdura_tier_device_failed{device=\"0\"} 1",
        "perdura_tier_device_busy_seconds_total{device=\"0\"} 7.5",
        "perdura_guard_answers 1",
        "perdura_tenant_dirty_bytes{tenant=\"/srv/a\"} 10",
        "perdura_tenant_running{tenant=\"/srv/a\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in:\n{text}");
    }
    assert!(!text.contains("perdura_tenant_share_seconds"), "no battery is shared");
}

#[test]
fn no_two_families_and_no_two_rows_are_the_same() {
    let descriptions = descriptions();
    let names: BTreeSet<_> = descriptions.iter().map(|(name, ..)| name).collect();
    assert_eq!(names.len(), descriptions.len());
    let fields: BTreeSet<_> = ROWS.iter().map(|row| row.field).collect();
    assert_eq!(fields.len(), ROWS.len());
    for (name, _, _, _, help) in &descriptions {
        assert!(name.starts_with("perdura_") && help.ends_with('.'), "{name}: {help}");
    }
}
