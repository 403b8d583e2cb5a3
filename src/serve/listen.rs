//! Sockets that accept connections.

use crate::error::{Error, ErrorKind, Result};
use nix::sys::socket::{AddressFamily, SockaddrLike, SockaddrStorage, getsockname};
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A name or address, and a port.
    Tcp(String),
    /// The path of a socket.
    Unix(PathBuf),
    /// A descriptor of a socket that listens already.
    Descriptor(RawFd),
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.is_empty() {
                true => Err("give the path of the socket: unix:PATH".to_owned()),
                false => Ok(Address::Unix(path.into())),
            };
        }
        if let Some(number) = text.strip_prefix("fd:") {
            let number = number.parse().ok().filter(|number| *number >= 0);
            return number
                .map(Address::Descriptor)
                .ok_or_else(|| "give fd:NUMBER".to_owned());
        }
        let port = text
            .rsplit_once(':')
            .map(|(host, port)| (host.is_empty(), port.parse::<u16>()));
        match port {
            Some((false, Ok(_))) => Ok(Address::Tcp(text.to_owned())),
            _ => Err("give ADDRESS:PORT, [ADDRESS]:PORT, unix:PATH or fd:NUMBER".to_owned()),
        }
    }
}

/// A socket that listens.
#[derive(Debug)]
pub enum Listener {
    /// Of TCP.
    Tcp(TcpListener),
    /// Of this machine, with the file if it was made here.
    Unix(UnixListener, Option<SocketFile>),
}

/// The file of a socket, which is removed when this is dropped, unless another has taken its place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Its inode number.
    number: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.number)
            && let Err(error) = fs::remove_file(&self.path)
        {
            let path = self.path.display();
            log::warn!("{path}: cannot remove the socket: {error}");
        }
    }
}

impl Listener {
    /// Listens at `address`; at each one that a name stands for.
    pub fn open(address: &Address) -> Result<Vec<Listener>> {
        match address {
            Address::Tcp(text) => text
                .to_socket_addrs()
                .and_then(bind)
                .map_err(|error| Error::io(&error).in_file(text)),
            Address::Unix(path) => unix(path)
                .map(|listener| vec![listener])
                .map_err(|error| Error::io(&error).in_file(format!("unix:{}", path.display()))),
            Address::Descriptor(number) => Listener::of_descriptor(*number).map(|listener| vec![listener]),
        }
    }

    /// The socket with this descriptor, of which this takes possession.
    pub fn of_descriptor(number: RawFd) -> Result<Listener> {
        let invalid =
            |cause: String| Error::new(ErrorKind::InvalidInput, cause).in_file(format!("fd:{number}"));
        let name = getsockname::<SockaddrStorage>(number)
            .map_err(|errno| invalid(io::Error::from(errno).to_string()))?;
        // SAFETY: it is an open socket, which was handed to this process to be used here, and once.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        nix::sys::socket::getsockopt(&socket, nix::sys::socket::sockopt::AcceptConn)
            .ok()
            .filter(|listens| *listens)
            .ok_or_else(|| invalid("it is no socket that listens".to_owned()))?;
        match name.family() {
            Some(AddressFamily::Inet | AddressFamily::Inet6) => Ok(Listener::Tcp(socket.into())),
            Some(AddressFamily::Unix) => Ok(Listener::Unix(socket.into(), None)),
            _ => Err(invalid("it is no socket of TCP or of this machine".to_owned())),
        }
    }

    /// Whether only processes of this machine can connect.
    pub fn is_local(&self) -> bool {
        match self {
            Listener::Tcp(socket) => socket
                .local_addr()
                .is_ok_and(|address| address.ip().to_canonical().is_loopback()),
            Listener::Unix(..) => true,
        }
    }

    /// Its URL, with the root of the tree at `prefix`.
    pub fn url(&self, https: bool, prefix: &str) -> io::Result<String> {
        let scheme = if https { "https" } else { "http" };
        match self {
            Listener::Tcp(socket) => Ok(format!("{scheme}://{}{prefix}/", socket.local_addr()?)),
            Listener::Unix(_, Some(file)) => {
                Ok(format!("unix:{}", std::path::absolute(&file.path)?.display()))
            }
            Listener::Unix(socket, None) => {
                let address = socket.local_addr()?;
                let path = address.as_pathname().unwrap_or(Path::new(""));
                Ok(format!("unix:{}", path.display()))
            }
        }
    }

    /// The address of a socket of TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(socket) => socket.local_addr().ok(),
            Listener::Unix(..) => None,
        }
    }
}

/// Sockets at `addresses`. Fails if none of them is one of this machine: `localhost` may also stand for an
/// address of IPv6 where that is off.
fn bind(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<Vec<Listener>> {
    let (mut bound, mut absent) = (Vec::new(), None);
    for address in addresses {
        match TcpListener::bind(address) {
            Ok(socket) => bound.push(Listener::Tcp(socket)),
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT)
                ) =>
            {
                absent = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match absent {
        Some(error) if bound.is_empty() => Err(error),
        _ => Ok(bound),
    }
}

/// A socket at `path` that only this user may connect to. A dead one is replaced.
fn unix(path: &Path) -> io::Result<Listener> {
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "there is a file that is no socket",
            ));
        }
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            Ok(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    "another process listens there",
                ));
            }
            Err(error) => return Err(error),
        }
    }
    // Bound under another name, and moved when nobody else can connect any more.
    let mut hidden = path.as_os_str().to_owned();
    hidden.push(format!(".{}", std::process::id()));
    let hidden = PathBuf::from(hidden);
    let listener = UnixListener::bind(&hidden)?;
    let placed = fs::set_permissions(&hidden, fs::Permissions::from_mode(0o600))
        .and_then(|()| fs::rename(&hidden, path))
        .and_then(|()| fs::symlink_metadata(path));
    match placed {
        Ok(metadata) => {
            let file = SocketFile {
                path: path.to_owned(),
                number: metadata.ino(),
            };
            Ok(Listener::Unix(listener, Some(file)))
        }
        Err(error) => {
            let _ = fs::remove_file(&hidden);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn addresses_are_parsed() {
        let parse = |text: &str| text.parse::<Address>();
        assert_eq!(parse("unix:/run/t.sock"), Ok(Address::Unix("/run/t.sock".into())));
        assert_eq!(parse("fd:3"), Ok(Address::Descriptor(3)));
        for text in ["127.0.0.1:0", "[::1]:8470", "localhost:80"] {
            assert_eq!(parse(text), Ok(Address::Tcp(text.to_owned())));
        }
        for text in [
            "",
            "8470",
            ":8470",
            "127.0.0.1",
            "h:99999",
            "unix:",
            "fd:",
            "fd:-1",
            "fd:x",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_that_are_not_of_this_machine_are_left_out_unless_all_are() {
        // For documentation (RFC 3849). With no interface up, Linux lets programs take any address of IPv4.
        let [other, own] = ["[2001:db8::1]:0", "127.0.0.1:0"].map(|text| text.parse().unwrap());
        for (addresses, bound) in [
            (vec![other, own], Some(1)),
            (vec![own], Some(1)),
            (vec![other], None),
        ] {
            let listeners = bind(addresses.into_iter()).ok();
            assert_eq!(listeners.map(|listeners| listeners.len()), bound);
        }
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_living_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let address = Address::Unix(path.clone());
        let first = Listener::open(&address).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(Listener::open(&address).is_err());
        drop(first);
        assert!(!path.exists());
        // One whose process was killed.
        drop(UnixListener::bind(&path).unwrap());
        let second = Listener::open(&address).unwrap();
        // Another one in its place stays.
        fs::write(folder.path().join("other"), "x").unwrap();
        fs::rename(folder.path().join("other"), &path).unwrap();
        drop(second);
        assert!(path.exists());
        fs::write(&path, "x").unwrap();
        assert!(Listener::open(&address).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"x");
    }

    #[test]
    fn only_sockets_that_listen_are_taken() {
        let file = tempfile::tempfile().unwrap();
        assert!(Listener::of_descriptor(file.as_raw_fd()).is_err());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = nix::unistd::dup(&listener).unwrap();
        let taken = Listener::of_descriptor(std::os::fd::IntoRawFd::into_raw_fd(number)).unwrap();
        assert!(taken.is_local() && taken.address() == listener.local_addr().ok());
    }
}
