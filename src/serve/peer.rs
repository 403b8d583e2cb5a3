//! Whose process is at the other end of a connection over loopback: one exact question to the kernel.
//!
//! The question (`inet_diag_req_v2`) and the answer (`inet_diag_msg`), in the order of bytes of the machine
//! but for ports and addresses, which are in that of the network. Each follows a header of 16 bytes
//! (`nlmsghdr`):
//!
//! | question | | answer | |
//! |---|---|---|---|
//! | 0 | family, protocol, extensions, padding | 0 | family, state, timer, retransmissions |
//! | 4 | states, as bits | 4 | the socket, as asked for |
//! | 8 | the socket: source port, destination port, source (16), destination (16), interface, cookie (8) | 52 | expires, receive queue, send queue |
//! | | | 64 | uid |
//! | | | 68 | inode |

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

/// The type of questions and answers, `SOCK_DIAG_BY_FAMILY`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;

/// Bytes of the header of a message, of a question, and of an answer.
const HEADER: usize = 16;
const QUESTION: usize = 56;
const ANSWER: usize = 72;

/// The user who owns the socket at `peer` that is connected to `local`; None if no process has that socket in
/// this network namespace.
pub fn uid(peer: SocketAddr, local: SocketAddr) -> io::Result<Option<u32>> {
    let (peer, local) = (unmapped(peer), unmapped(local));
    let kernel = socket(
        AddressFamily::Netlink,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )?;
    setsockopt(&kernel, sockopt::ReceiveTimeout, &TimeVal::new(1, 0))?;
    send(kernel.as_raw_fd(), &question(peer, local), MsgFlags::empty())?;
    let mut reply = [0; 512];
    let length = recv(kernel.as_raw_fd(), &mut reply, MsgFlags::empty())?;
    Ok(owner(&reply[..length]))
}

/// An address of IPv4 that is written as one of IPv6, as what it is.
fn unmapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The question for the socket at `peer`, which is connected to `local`.
fn question(peer: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let family = match peer {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let address = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
        IpAddr::V6(ip) => ip.octets(),
    };
    let flags = libc::NLM_F_REQUEST as u16;
    let mut out = Vec::with_capacity(HEADER + QUESTION);
    out.extend(((HEADER + QUESTION) as u32).to_ne_bytes());
    out.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    // Sequence and sender, which nobody asks for.
    out.extend([0; 8]);
    out.extend([family as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    out.extend(u32::MAX.to_ne_bytes());
    out.extend(peer.port().to_be_bytes());
    out.extend(local.port().to_be_bytes());
    out.extend(address(peer));
    out.extend(address(local));
    // Any interface, any cookie.
    out.extend(0u32.to_ne_bytes());
    out.extend([0xff; 8]);
    out
}

/// The user in an answer. None for an error, and for a socket without an inode: no process has it any more,
/// and the kernel says that it is root's.
fn owner(reply: &[u8]) -> Option<u32> {
    let number = |at: usize| Some(u32::from_ne_bytes(reply.get(at..at + 4)?.try_into().ok()?));
    let kind = reply.get(4..6)?;
    if kind != SOCK_DIAG_BY_FAMILY.to_ne_bytes() || reply.len() < HEADER + ANSWER {
        return None;
    }
    let (uid, inode) = (number(HEADER + 64)?, number(HEADER + 68)?);
    (inode != 0).then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of the kernel about a socket with this inode, which is user 1000's.
    fn answer(kind: u16, inode: u32) -> Vec<u8> {
        let mut reply = vec![0; HEADER + ANSWER];
        reply[4..6].copy_from_slice(&kind.to_ne_bytes());
        reply[HEADER + 64..HEADER + 68].copy_from_slice(&1000u32.to_ne_bytes());
        reply[HEADER + 68..].copy_from_slice(&inode.to_ne_bytes());
        reply
    }

    #[test]
    fn a_socket_without_a_process_is_nobodys() {
        assert_eq!(owner(&answer(SOCK_DIAG_BY_FAMILY, 77)), Some(1000));
        assert_eq!(owner(&answer(SOCK_DIAG_BY_FAMILY, 0)), None);
        let error = libc::NLMSG_ERROR as u16;
        assert_eq!(owner(&answer(error, 77)), None);
        assert_eq!(
            owner(&answer(SOCK_DIAG_BY_FAMILY, 77)[..HEADER + ANSWER - 1]),
            None
        );
        assert_eq!(owner(&[]), None);
    }

    #[test]
    fn the_kernel_answers_for_sockets_that_nobody_has() {
        for addresses in [
            ["127.0.0.1:1", "127.0.0.1:2"],
            ["[::1]:1", "[::1]:2"],
            ["[::ffff:127.0.0.1]:1", "127.0.0.1:2"],
        ] {
            let [peer, local] = addresses.map(|address| address.parse().unwrap());
            assert_eq!(uid(peer, local).unwrap(), None, "{addresses:?}");
        }
    }

    #[test]
    fn addresses_of_ipv4_are_asked_for_as_such() {
        let mapped = "[::ffff:10.0.0.1]:80".parse().unwrap();
        let question = question(unmapped(mapped), "10.0.0.2:258".parse().unwrap());
        assert_eq!(question.len(), HEADER + QUESTION);
        assert_eq!(question[HEADER], libc::AF_INET as u8);
        assert_eq!(question[HEADER + 8..HEADER + 16], [0, 80, 1, 2, 10, 0, 0, 1]);
    }
}
