//! Our addresses written down, for kernels that keep no mark on them.
//!
//! An entry is an interface, an address with its prefix length, and when the kernel
//! created that address. The last is what tells our address from one that an operator
//! adds after ours expired. It is known only once the address is there, so an entry is
//! first written *pending*: a crash between the entry and the address leaves an entry
//! without an address, which the next look drops; the other order would leave an
//! address that nobody ever removes.
//!
//! The applier alone writes; the monitor reads. Interface numbers are good until the
//! next boot, and so is a file in the run directory.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use purelb_core::ids::IfIndex;
use serde::{Deserialize, Serialize};

use crate::netlink::parse::KernelAddress;

pub(crate) type AddressId = (IfIndex, IpNet);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressRecord {
    file: PathBuf,
    entries: BTreeMap<AddressId, Option<u32>>,
}

#[derive(Serialize, Deserialize)]
struct RecordLine {
    index: IfIndex,
    net: IpNet,
    /// Absent: pending.
    created: Option<u32>,
}

impl AddressRecord {
    /// Reads the file; there is none at the first start.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        let file = directory.join("addresses.json");
        let lines: Vec<RecordLine> = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "{}: {error}; it lists the addresses this node announces: if they are gone, delete the file",
                        file.display()
                    ),
                )
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let entries = lines.into_iter().map(|line| ((line.index, line.net), line.created)).collect();
        Ok(Self { file, entries })
    }

    pub(crate) fn contains(&self, address: &KernelAddress) -> bool {
        self.entries
            .get(&(address.index, address.net))
            .is_some_and(|created| created.is_none_or(|at| at == address.created))
    }

    /// About to add these.
    pub(crate) fn begin(&mut self, keys: &[AddressId]) -> io::Result<()> {
        self.change(|entries| entries.extend(keys.iter().map(|key| (*key, None))))
    }

    /// These were not added after all.
    pub(crate) fn forget(&mut self, refused: &[AddressId]) -> io::Result<()> {
        self.change(|entries| {
            for key in refused {
                entries.remove(key);
            }
        })
    }

    /// After a batch: `now` is what the kernel shows on `links` (`None` = everywhere).
    /// Pending entries get their creation time, entries without an address go.
    pub(crate) fn settle(
        &mut self,
        now: &[KernelAddress],
        links: Option<IfIndex>,
        refused: &[AddressId],
    ) -> io::Result<()> {
        let shown: BTreeMap<AddressId, u32> = now.iter().map(|a| ((a.index, a.net), a.created)).collect();
        self.change(|entries| {
            for key in refused {
                entries.remove(key);
            }
            entries.retain(|key, created| match shown.get(key) {
                Some(at) => *created.get_or_insert(*at) == *at,
                None => links.is_some_and(|only| only != key.0),
            });
        })
    }

    /// Writes a copy beside the file and renames it: a reader sees the old or the new.
    fn change(&mut self, change: impl FnOnce(&mut BTreeMap<AddressId, Option<u32>>)) -> io::Result<()> {
        let mut entries = self.entries.clone();
        change(&mut entries);
        if entries == self.entries {
            return Ok(());
        }
        let lines: Vec<RecordLine> = entries
            .iter()
            .map(|((index, net), created)| RecordLine { index: *index, net: *net, created: *created })
            .collect();
        let directory = self.file.parent().unwrap_or(Path::new("."));
        let mut next = tempfile::NamedTempFile::new_in(directory)?;
        serde_json::to_writer(&mut next, &lines)?;
        next.flush()?;
        next.persist(&self.file).map_err(|error| error.error)?;
        self.entries = entries;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
