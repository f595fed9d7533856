//! Latencies on the machine of the hash-sharing paper (DAMON 2021, Table 1), in nanoseconds.
//!
//! The introduction has rounder numbers for the same machine (2 ms for a disk, 100 µs for an SSD);
//! the table is the source of its figures, and of the values here. Section 1 calls both the 10 µs
//! and the SPDK device "PCIe SSD".

/// A storage device, and the time to read 4 KiB from it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Device {
    /// Name as in Table 1.
    pub name: &'static str,
    /// Time to read a page of 4 KiB, T_D, in nanoseconds.
    pub access_ns: f64,
}

/// A hash function, and its time for a long key.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HashFunction {
    /// Name as in Table 1.
    pub name: &'static str,
    /// Time to hash a key of 1 KiB, T_H, in nanoseconds.
    pub hash_ns: f64,
}

/// A hard disk: 4.6 ms.
pub const HDD: Device = Device { name: "HDD", access_ns: 4_600_000.0 };
/// An off-the-shelf SSD: 113 µs.
pub const SSD: Device = Device { name: "SSD", access_ns: 113_000.0 };
/// A fast SSD on PCIe: 10 µs.
pub const PCIE_SSD: Device = Device { name: "PCIe SSD", access_ns: 10_000.0 };
/// The same without a file system: 7 µs.
pub const PCIE_SSD_SPDK: Device = Device { name: "PCIe SSD (SPDK)", access_ns: 7_000.0 };
/// Non-volatile memory, emulated: 250 ns.
pub const NVM: Device = Device { name: "NVM", access_ns: 250.0 };
/// Main memory: 160 ns.
pub const MEMORY: Device = Device { name: "memory", access_ns: 160.0 };

/// All devices, slowest first.
pub const DEVICES: [Device; 6] = [HDD, SSD, PCIE_SSD, PCIE_SSD_SPDK, NVM, MEMORY];

/// CityHash64: 176 ns.
pub const CITY: HashFunction = HashFunction { name: "CITY", hash_ns: 176.0 };
/// MurmurHash64, the paper's usual choice: 235 ns.
pub const MURMUR64: HashFunction = HashFunction { name: "MM64", hash_ns: 235.0 };
/// CRC: 323 ns.
pub const CRC: HashFunction = HashFunction { name: "CRC", hash_ns: 323.0 };
/// XXHash as RocksDB had it then: 874 ns. Today's XXH3 is far faster.
pub const XXHASH: HashFunction = HashFunction { name: "XX", hash_ns: 874.0 };
/// MD5: 2.85 µs.
pub const MD5: HashFunction = HashFunction { name: "MD5", hash_ns: 2_850.0 };
/// SHA-256: 5.17 µs.
pub const SHA256: HashFunction = HashFunction { name: "SHA-256", hash_ns: 5_170.0 };

/// All hash functions, fastest first.
pub const HASH_FUNCTIONS: [HashFunction; 6] = [CITY, MURMUR64, CRC, XXHASH, MD5, SHA256];

/// Converts a time to memory accesses: Table 1's last column.
pub fn normalized(ns: f64) -> f64 {
    ns / MEMORY.access_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_column_of_table_1() {
        let printed = [28_750.0, 706.0, 62.5, 43.75, 1.56, 1.0];
        for (device, printed) in DEVICES.iter().zip(printed) {
            assert!((normalized(device.access_ns) / printed - 1.0).abs() < 0.005, "{}", device.name);
        }
        let printed = [1.1, 1.47, 2.0, 5.46, 17.81, 32.31];
        for (hash, printed) in HASH_FUNCTIONS.iter().zip(printed) {
            assert!((normalized(hash.hash_ns) / printed - 1.0).abs() < 0.01, "{}", hash.name);
        }
        // Section 1: storage is 480, 42 and 30 times more expensive than hashing.
        for (device, printed) in [(SSD, 480.0), (PCIE_SSD, 42.0), (PCIE_SSD_SPDK, 30.0)] {
            assert!((device.access_ns / MURMUR64.hash_ns / printed - 1.0).abs() < 0.02, "{}", device.name);
        }
    }
}
