//! Any bytes are sent by an NBD client, cut anywhere: there is no panic, answers and requests do
//! not depend on the cuts, and every accepted request lies within the export.

use perdura_block::nbd::handshake::{Handshake, Offer, Step};
use perdura_block::nbd::request::{Operation, Request, Terms, parse};
use perdura_block::nbd::wire::{PAYLOAD_MAX_BYTES, REQUEST_BYTES};

const CAPACITY_BYTES: u64 = 1 << 20;

/// Answers of the server, requests of the client, and whether the server ends the connection.
type Story = (Vec<u8>, Vec<Request>, bool);

fn follow(input: &[u8], cut: usize, read_only: bool) -> Story {
    let offer = Offer {
        name: "disk",
        description: "modelled",
        capacity_bytes: CAPACITY_BYTES,
        read_only,
        stopping: false,
    };
    let mut handshake = Handshake::default();
    let (mut out, mut start, mut end) = (Vec::new(), 0, cut);
    let structured = loop {
        match handshake.take(&input[start..end], &offer, &mut out) {
            Ok((0, Step::More)) if end == input.len() => return (out, Vec::new(), false),
            Ok((0, Step::More)) => end = input.len(),
            Ok((taken, Step::More)) => start += taken,
            Ok((taken, Step::Transmission { structured })) => {
                start += taken;
                break structured;
            }
            Ok((_, Step::Over)) => return (out, Vec::new(), true),
            Err(_) => return (out, Vec::new(), true),
        }
        // At most 256 options, each answered with a few descriptions of the export.
        assert!(out.len() <= 1 << 20);
    };
    let terms = Terms { capacity_bytes: CAPACITY_BYTES, read_only, structured };
    let mut requests = Vec::new();
    loop {
        match parse(&input[start.min(end)..end], &terms) {
            Ok(Some(request)) => {
                judge(&request, read_only);
                requests.push(request);
                start += REQUEST_BYTES + request.payload_bytes as usize;
            }
            Ok(None) if end == input.len() => return (out, requests, false),
            Ok(None) => end = input.len(),
            Err(_) => return (out, requests, true),
        }
    }
}

fn judge(request: &Request, read_only: bool) {
    let Ok(operation) = request.asked else { return };
    if !matches!(operation, Operation::Flush | Operation::Disconnect) {
        let end = u128::from(request.offset_bytes) + u128::from(request.len_bytes);
        assert!(end <= u128::from(CAPACITY_BYTES) && request.len_bytes > 0);
        assert!(!read_only || operation == Operation::Read);
    }
    assert!(request.payload_bytes <= PAYLOAD_MAX_BYTES || operation == Operation::Disconnect);
}

pub fn check(data: &[u8]) {
    let [first, second, input @ ..] = data else { return };
    let cut = usize::from(*first).min(input.len());
    let read_only = second & 1 == 1;
    assert_eq!(follow(input, cut, read_only), follow(input, input.len(), read_only));
}
