//! `perdura plan kubernetes`: a manifest whose times and sizes keep the promise.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use perdura_media::{Bytes, BytesPerSecond, format_duration};
use perdura_plan::pod::{MARGIN, Pod, PodLimit, Wanted, pod};

use super::rate;
use perdura_terminal::{named, optional, say, time};

/// What Kubernetes gives a pod if nothing is said.
const TERMINATION: Duration = Duration::from_secs(30);
/// Time that other machines usually take to learn that a pod is going.
const PRE_STOP: Duration = Duration::from_secs(5);
/// The user and group that the server runs as.
const USER: u32 = 10_001;

/// Options of `plan kubernetes`.
#[derive(Debug, Args)]
pub struct KubernetesArgs {
    /// Memory that is served.
    #[arg(long, value_name = "SIZE")]
    memory: String,
    /// Rate at which dirty data reach the volume in an emergency; `perdura serve` prints the rate
    /// that it proved.
    #[arg(long, value_name = "RATE", required_unless_present = "measure")]
    flush_rate: Option<String>,
    /// Measure that rate in this directory, which must be on such a volume.
    #[arg(long, value_name = "DIR", conflicts_with = "flush_rate")]
    measure: Option<PathBuf>,
    /// Time from the deletion of the pod to its kill [default: 30s].
    #[arg(long, value_name = "TIME")]
    termination: Option<String>,
    /// Most data that may be dirty; the time follows from it.
    #[arg(long, value_name = "SIZE", conflicts_with = "termination")]
    budget: Option<String>,
    /// Time before SIGTERM in which clients are sent elsewhere [default: 5s].
    #[arg(long, value_name = "TIME")]
    pre_stop: Option<String>,
    /// Name of everything that the manifest makes.
    #[arg(long, default_value = "perdura")]
    name: String,
    /// Container image that has the program.
    #[arg(long, value_name = "IMAGE", default_value = "perdura:latest")]
    image: String,
    /// Storage class of the volume [default: the cluster's default].
    #[arg(long, value_name = "NAME")]
    storage_class: Option<String>,
    /// Print the numbers as JSON instead of the manifest.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &KubernetesArgs) -> Result<ExitCode> {
    ensure!(
        is_label(&args.name),
        "--name {}: expected small letters, digits and dashes, at most 50",
        args.name
    );
    for (option, text) in
        [("image", Some(&args.image)), ("storage-class", (&args.storage_class).into())]
    {
        ensure!(
            text.is_none_or(|text| is_plain(text)),
            "--{option}: expected letters, digits, ./:@_-"
        );
    }
    let Bytes(memory_bytes) = named("memory", &args.memory, args.memory.parse())?;
    let BytesPerSecond(flush_bytes_per_s) = match &args.measure {
        Some(dir) => rate::measure(dir)?,
        None => optional("flush-rate", &args.flush_rate)?.context("--flush-rate is missing")?,
    };
    let limit = match optional("budget", &args.budget)? {
        Some(Bytes(bytes)) => PodLimit::Budget(bytes),
        None => {
            PodLimit::Termination(time("termination", &args.termination)?.unwrap_or(TERMINATION))
        }
    };
    let pre_stop = time("pre-stop", &args.pre_stop)?.unwrap_or(PRE_STOP);
    let pod = pod(&Wanted { memory_bytes, flush_bytes_per_s, pre_stop, limit })?;
    if args.json {
        let answer = serde_json::json!({
            "memory_bytes": memory_bytes,
            "flush_rate_bytes_per_s": flush_bytes_per_s,
            "pod": pod,
        });
        say(serde_json::to_string_pretty(&answer).context("JSON")?);
    } else {
        say(manifest(args, &pod, memory_bytes, flush_bytes_per_s));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether this may be a label of DNS, with room for what Kubernetes adds.
fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    (1..=50).contains(&bytes.len())
        && bytes.iter().all(|byte| is_inner(*byte) || *byte == b'-')
        && bytes.first().is_some_and(|byte| byte.is_ascii_lowercase())
        && bytes.last().is_some_and(|byte| is_inner(*byte))
}

/// Whether this can stand in the manifest as it is.
fn is_plain(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"./:@_-".contains(&byte);
    !text.is_empty() && text.bytes().all(is_allowed)
}

/// Whole MiB, rounded up.
fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

fn manifest(args: &KubernetesArgs, pod: &Pod, memory_bytes: u64, rate_bytes_per_s: u64) -> String {
    let Pod { termination_s, pre_stop_s, warning_s, reserve_s, flush_s, .. } = *pod;
    let (name, image) = (&args.name, &args.image);
    let budget = match &args.budget {
        Some(_) => format!("\n            - --budget={}", pod.budget_bytes),
        None => String::new(),
    };
    let class = args
        .storage_class
        .as_ref()
        .map_or(String::new(), |class| format!("\n        storageClassName: \"{class}\""));
    let seconds = |s| format_duration(Duration::from_secs_f64(s));
    format!(
        r#"# Made by `perdura plan kubernetes`. What follows from what:
# - {rate} at worst write a budget of {budget_size} in {flush}; {reserve} are kept back.
# - The warning is {warning_s}s. The pod is killed {termination_s}s after its deletion: {pre_stop_s}s in which
#   clients are sent elsewhere, the warning, and {margin} for the cluster's own work.
# - The container may have {limit}Mi: the memory, a twentieth for its ledger, and 64Mi.
# - The volume has {volume}Mi: the image at its largest.
# A container that is killed without a warning goes back to the last checkpoint (at most 1s), because
# the holder ends with it. Add --durability=fsync if no reply may be lost then.
# If the volume is slower than this rate, the server says so at its start and lets less be dirty.
apiVersion: v1
kind: Service
metadata:
  name: {name}
spec:
  clusterIP: None
  selector:
    app: {name}
  ports:
    - name: redis
      port: 6379
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {name}
spec:
  serviceName: {name}
  replicas: 1
  selector:
    matchLabels:
      app: {name}
  template:
    metadata:
      labels:
        app: {name}
    spec:
      terminationGracePeriodSeconds: {termination_s}
      securityContext:
        fsGroup: {USER}
      containers:
        - name: perdura
          image: "{image}"
          args:
            - serve
            - --listen=0.0.0.0:6379
            # The cluster's network is trusted. Where it is not: --tls-listen and a certificate.
            - --allow-plaintext
            - --dir=/data
            - --memory={memory_bytes}
            - --grace={warning_s}s{budget}
          env:
            # kubectl create secret generic {name} --from-literal=password=...
            - name: PERDURA_PASSWORD
              valueFrom:
                secretKeyRef:
                  name: {name}
                  key: password
          ports:
            - name: redis
              containerPort: 6379
          lifecycle:
            preStop:
              exec:
                command: ["sleep", "{pre_stop_s}"]
          # The first answer comes before the memory is loaded.
          startupProbe:
            tcpSocket:
              port: redis
            periodSeconds: 1
            failureThreshold: 120
          readinessProbe:
            tcpSocket:
              port: redis
            periodSeconds: 2
          livenessProbe:
            tcpSocket:
              port: redis
            periodSeconds: 10
            failureThreshold: 6
          resources:
            # The same: a pod that has what it asks for is evicted last.
            requests:
              cpu: "1"
              memory: {limit}Mi
            limits:
              cpu: "1"
              memory: {limit}Mi
          securityContext:
            runAsNonRoot: true
            runAsUser: {USER}
            runAsGroup: {USER}
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: ["ALL"]
          volumeMounts:
            - name: data
              mountPath: /data
  volumeClaimTemplates:
    - metadata:
        name: data
      spec:
        accessModes: ["ReadWriteOncePod"]{class}
        resources:
          requests:
            storage: {volume}Mi"#,
        rate = BytesPerSecond(rate_bytes_per_s),
        budget_size = Bytes(pod.budget_bytes),
        flush = seconds(flush_s),
        reserve = seconds(reserve_s),
        margin = format_duration(MARGIN),
        limit = mib(pod.memory_limit_bytes),
        volume = mib(pod.volume_bytes),
    )
}
