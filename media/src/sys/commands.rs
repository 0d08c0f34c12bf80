//! Commands to drives and to a board's management controller, by `ioctl`.
//!
//! The structures are the kernel's (`linux/nvme_ioctl.h`, `scsi/sg.h`, `linux/ipmi.h`), which are
//! part of its stable interface.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;

use rustix::fs::{AtFlags, CWD, StatxFlags};

/// Where a file lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub major: u32,
    pub minor: u32,
    pub mount: u64,
}

/// The device and the mount that a file lies on.
pub(crate) fn device_of(path: &Path) -> io::Result<Place> {
    let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID)?;
    let (major, minor, mount) = (found.stx_dev_major, found.stx_dev_minor, found.stx_mnt_id);
    Ok(Place { major, minor, mount })
}

/// A command of NVMe's administrative queue: `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NvmeCommand {
    pub opcode: u8,
    pub flags: u8,
    pub rsvd1: u16,
    pub nsid: u32,
    pub cdw2: u32,
    pub cdw3: u32,
    pub metadata: u64,
    pub addr: u64,
    pub metadata_len: u32,
    pub data_len: u32,
    pub cdw10: u32,
    pub cdw11: u32,
    pub cdw12: u32,
    pub cdw13: u32,
    pub cdw14: u32,
    pub cdw15: u32,
    pub timeout_ms: u32,
    pub result: u32,
}

const NVME_COMMAND_BYTES: usize = 72;
const _: () = assert!(size_of::<NvmeCommand>() == NVME_COMMAND_BYTES);

#[cfg(test)]
impl NvmeCommand {
    /// The bytes that the kernel is given.
    pub fn bytes(self) -> [u8; NVME_COMMAND_BYTES] {
        // SAFETY: the structure has integers without gaps (their sizes sum up to its own), so each
        // of its bytes is initialised.
        unsafe { std::mem::transmute(self) }
    }
}

const READ: u32 = 2;
const WRITE: u32 = 1;

/// The number of an `ioctl` that reads, writes or both, by the kernel's rule.
const fn number(direction: u32, kind: u8, number: u8, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (kind as u32) << 8 | number as u32
}

const NVME_IOCTL_ADMIN_CMD: u32 = number(READ | WRITE, b'N', 0x41, NVME_COMMAND_BYTES);
const SG_IO: u32 = 0x2285;
const IPMICTL_SEND_COMMAND: u32 = number(READ, b'i', 13, size_of::<IpmiRequest>());
const IPMICTL_RECEIVE_MSG_TRUNC: u32 = number(READ | WRITE, b'i', 11, size_of::<IpmiReceive>());

/// Calls `ioctl` and returns what it returns.
///
/// # Safety
/// `argument` points to the structure that the request means, and all pointers in that are valid
/// for their lengths.
unsafe fn ioctl<T>(file: &File, request: u32, argument: &mut T) -> io::Result<i32> {
    // SAFETY: the caller says that the kernel finds what it expects behind the pointer.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request as _, ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Sends a command whose answer goes to `data`, of the length that the command names. Returns
/// NVMe's status, 0 for success, and the first word of the answer.
pub(crate) fn nvme_admin(
    file: &File,
    mut command: NvmeCommand,
    data: &mut [u8],
) -> io::Result<(u16, u32)> {
    assert_eq!(command.data_len as usize, data.len(), "the command's data and its room differ");
    command.addr = if data.is_empty() { 0 } else { data.as_mut_ptr() as u64 };
    // SAFETY: the structure is the one of this request; its only pointer is to `data`, which is as
    // long as it says and outlives the call.
    let status = unsafe { ioctl(file, NVME_IOCTL_ADMIN_CMD, &mut command) }?;
    Ok((status as u16, command.result))
}

/// `struct sg_io_hdr`.
#[repr(C)]
struct ScsiRequest {
    interface_id: i32,
    direction: i32,
    command_len: u8,
    sense_max: u8,
    iovec_count: u16,
    data_len: u32,
    data: *mut u8,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    pack_id: i32,
    user: *mut u8,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_len: u8,
    host_status: u16,
    driver_status: u16,
    residual: i32,
    duration_ms: u32,
    info: u32,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<ScsiRequest>() == 88);

const DIRECTION_NONE: i32 = -1;
const SENSE_MAX: usize = 64;

/// What came back for a SCSI command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScsiAnswer {
    /// The device's status; 2 says that there is sense data.
    pub status: u8,
    /// What the host's adapter says.
    pub host_status: u16,
    /// What the kernel's driver says.
    pub driver_status: u16,
    /// The sense data.
    pub sense: Vec<u8>,
}

/// Sends a SCSI command that has no data.
pub(crate) fn scsi_without_data(
    file: &File,
    command: &[u8; 16],
    timeout_ms: u32,
) -> io::Result<ScsiAnswer> {
    let mut sense = [0_u8; SENSE_MAX];
    let mut request = ScsiRequest {
        interface_id: i32::from(b'S'),
        direction: DIRECTION_NONE,
        command_len: command.len() as u8,
        sense_max: sense.len() as u8,
        iovec_count: 0,
        data_len: 0,
        data: ptr::null_mut(),
        command: command.as_ptr(),
        sense: sense.as_mut_ptr(),
        timeout_ms,
        flags: 0,
        pack_id: 0,
        user: ptr::null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_len: 0,
        host_status: 0,
        driver_status: 0,
        residual: 0,
        duration_ms: 0,
        info: 0,
    };
    // SAFETY: the structure is the one of this request; `command` and `sense` are as long as it
    // says and outlive the call; there is no data.
    unsafe { ioctl(file, SG_IO, &mut request) }?;
    let written = usize::from(request.sense_len).min(sense.len());
    Ok(ScsiAnswer {
        status: request.status,
        host_status: request.host_status,
        driver_status: request.driver_status,
        sense: sense[..written].to_vec(),
    })
}

/// `struct ipmi_msg`.
#[repr(C)]
struct IpmiMessage {
    function: u8,
    command: u8,
    len: u16,
    data: *mut u8,
}

/// `struct ipmi_req`.
#[repr(C)]
struct IpmiRequest {
    address: *mut IpmiAddress,
    address_len: u32,
    number: libc::c_long,
    message: IpmiMessage,
}

/// `struct ipmi_recv`.
#[repr(C)]
struct IpmiReceive {
    kind: i32,
    address: *mut IpmiAddress,
    address_len: u32,
    number: libc::c_long,
    message: IpmiMessage,
}

/// `struct ipmi_system_interface_addr`, and more room, because an answer may have another kind of
/// address: `struct ipmi_addr`.
#[repr(C)]
struct IpmiAddress {
    kind: i32,
    channel: i16,
    unit: u8,
    rest: [u8; 33],
}

const SYSTEM_INTERFACE: i32 = 0x0C;
const THIS_CONTROLLER: i16 = 0x0F;
const SYSTEM_ADDRESS_BYTES: u32 = 8;

/// Sends a command to the management controller that `file` leads to.
pub(crate) fn ipmi_send(
    file: &File,
    number: i32,
    function: u8,
    command: u8,
    data: &mut [u8],
) -> io::Result<()> {
    let mut address =
        IpmiAddress { kind: SYSTEM_INTERFACE, channel: THIS_CONTROLLER, unit: 0, rest: [0; 33] };
    let len = u16::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut request = IpmiRequest {
        address: &raw mut address,
        address_len: SYSTEM_ADDRESS_BYTES,
        number: number.into(),
        message: IpmiMessage { function, command, len, data: data.as_mut_ptr() },
    };
    // SAFETY: the structure is the one of this request; address and data are at least as long as
    // it says and outlive the call.
    unsafe { ioctl(file, IPMICTL_SEND_COMMAND, &mut request) }.map(drop)
}

/// Takes a message that has come from the management controller: to which request it is the
/// answer, and its data, of which more than `data` holds is left out.
pub(crate) fn ipmi_receive(file: &File, data: &mut [u8]) -> io::Result<(i64, usize)> {
    let mut address = IpmiAddress { kind: 0, channel: 0, unit: 0, rest: [0; 33] };
    let len = u16::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut receive = IpmiReceive {
        kind: 0,
        address: &raw mut address,
        address_len: size_of::<IpmiAddress>() as u32,
        number: 0,
        message: IpmiMessage { function: 0, command: 0, len, data: data.as_mut_ptr() },
    };
    // SAFETY: the structure is the one of this request; address and data are as long as it says
    // and outlive the call.
    unsafe { ioctl(file, IPMICTL_RECEIVE_MSG_TRUNC, &mut receive) }?;
    #[allow(clippy::useless_conversion)] // shorter where pointers are
    let number = i64::from(receive.number);
    Ok((number, usize::from(receive.message.len).min(data.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn requests_have_the_numbers_of_the_kernels_headers() {
        assert_eq!(NVME_IOCTL_ADMIN_CMD, 0xC048_4E41);
        assert_eq!(IPMICTL_SEND_COMMAND, 0x8028_690D);
        assert_eq!(IPMICTL_RECEIVE_MSG_TRUNC, 0xC030_690B);
        assert_eq!(std::mem::offset_of!(ScsiRequest, sense), 32);
        assert_eq!(std::mem::offset_of!(ScsiRequest, status), 64);
        assert_eq!(std::mem::offset_of!(ScsiRequest, sense_len), 67);
        assert_eq!(std::mem::offset_of!(ScsiRequest, host_status), 68);
        assert_eq!(std::mem::offset_of!(IpmiReceive, message), 32);
    }
}
