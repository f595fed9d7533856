//! The paper's published figures, from the model.

use super::*;
use crate::bloom;
use crate::devices::{self, Device};

/// The tree of sections 1 and 5: 22 GB in five levels of ratio 10, 10 bits per key.
const PAPER: Tree = Tree { levels: 5, size_ratio: 10 };

fn on(device: Device, probe_ns: f64) -> Costs {
    Costs { hash_ns: devices::MURMUR64.hash_ns, probe_ns, access_ns: device.access_ns }
}

fn of(empty: f64) -> Workload {
    Workload { empty, false_positive: bloom::optimal_rate(10.0) }
}

/// Figure 6: nothing on disks, little on SSDs, more than 40 % on NVM, more with tiering.
#[test]
fn figure_6() {
    // For any probe cost between nothing and a memory access.
    for probe_ns in [0.0, devices::MEMORY.access_ns] {
        for tenths in 0..=10 {
            let workload = of(f64::from(tenths) / 10.0);
            for form in FORMS {
                let gain = |policy, device| gain(PAPER, policy, workload, on(device, probe_ns), form);
                for device in devices::DEVICES {
                    let (leveling, tiering) = (gain(Policy::Leveling, device), gain(Policy::Tiering, device));
                    assert!(tiering > leveling, "{} {form:?}: {leveling} {tiering}", device.name);
                    assert!(gain(Policy::TieringAtRest, device) > leveling);
                }
                assert!(gain(Policy::Leveling, devices::HDD) < 0.01);
                assert!(gain(Policy::Leveling, devices::SSD) < 0.17);
                assert!(gain(Policy::Leveling, devices::NVM) > 0.4);
                assert!(gain(Policy::Leveling, devices::MEMORY) > 0.4);
            }
        }
    }
    let gain =
        |device, probe_ns, empty| gain(PAPER, Policy::Leveling, of(empty), on(device, probe_ns), Form::Exact);
    let near = |value: f64, said: f64| assert!((value - said).abs() < 0.005, "{value}, not {said}");
    near(gain(devices::NVM, 0.0, 0.0), 0.65);
    near(gain(devices::NVM, 0.0, 1.0), 0.79);
    near(gain(devices::NVM, 160.0, 0.0), 0.42);
    near(gain(devices::NVM, 160.0, 1.0), 0.47);
    // Figure 13, measured on the SSD: negligible at α = 0, 17 % at α = 1.
    near(gain(devices::SSD, 0.0, 0.0), 0.008);
    near(gain(devices::SSD, 0.0, 1.0), 0.16);
    near(gain(devices::HDD, 0.0, 1.0), 0.005);
}

/// Figures 1 and 2, as far as the model goes: the module documentation says how far that is.
#[test]
fn figures_1_and_2() {
    let share = |policy, device, probe_ns, empty| {
        cost(PAPER, policy, Sharing::PerFilter, of(empty), on(device, probe_ns), Form::Exact).hash_share()
    };
    let near = |value: f64, said: f64| assert!((value - said).abs() < 0.005, "{value}, not {said}");
    near(share(Policy::Leveling, devices::PCIE_SSD, 0.0, 0.0), 0.100);
    near(share(Policy::Leveling, devices::PCIE_SSD, 0.0, 1.0), 0.742);
    near(share(Policy::Leveling, devices::PCIE_SSD_SPDK, 0.0, 0.0), 0.137);
    near(share(Policy::Leveling, devices::PCIE_SSD_SPDK, 0.0, 1.0), 0.804);
    near(share(Policy::Leveling, devices::PCIE_SSD, 160.0, 1.0), 0.493);
    near(share(Policy::Leveling, devices::NVM, 0.0, 1.0), 0.991);
    // With a hash of 370 ns both of the paper's numbers come out.
    let slow = |empty| {
        let costs = Costs { hash_ns: 370.0, probe_ns: 0.0, access_ns: 10_000.0 };
        cost(PAPER, Policy::Leveling, Sharing::PerFilter, of(empty), costs, Form::Exact).hash_share()
    };
    near(slow(0.0), 0.15);
    assert!(slow(1.0) > 0.75);
    for (slower, faster) in devices::DEVICES.iter().zip(&devices::DEVICES[1..]) {
        for policy in POLICIES {
            let mut last = 0.0;
            for tenths in 0..=10 {
                let empty = f64::from(tenths) / 10.0;
                let here = share(policy, *slower, 20.0, empty);
                assert!(here > last, "the share grows with α");
                assert!(share(policy, *faster, 20.0, empty) > here, "and with the speed of the device");
                // Figure 2 compared with Figure 1.
                assert!(share(Policy::Tiering, *slower, 20.0, empty) >= here);
                last = here;
            }
        }
    }
}

/// Section 5: the benefit rises with the bits per key (Figure 12) and with the levels at T = 2
/// (Figure 8b).
#[test]
fn figures_8_and_12() {
    let costs = on(devices::PCIE_SSD, 20.0);
    for (bits, more) in (8..14).map(|bits| (f64::from(bits), f64::from(bits + 1))) {
        let of = |bits| {
            let workload = Workload { empty: 1.0, false_positive: bloom::optimal_rate(bits) };
            gain(PAPER, Policy::Leveling, workload, costs, Form::Exact)
        };
        assert!(of(more) > of(bits));
    }
    for levels in 8..14 {
        let of = |levels| cost_of(Tree { levels, size_ratio: 2 }, Sharing::Shared, costs);
        let apart = |levels| cost_of(Tree { levels, size_ratio: 2 }, Sharing::PerFilter, costs);
        assert_eq!(of(levels + 1).hash_ns, of(levels).hash_ns, "one hash at any height");
        same(apart(levels + 1).hash_ns, apart(levels).hash_ns + costs.hash_ns, levels);
    }
}

fn cost_of(tree: Tree, sharing: Sharing, costs: Costs) -> Breakdown {
    cost(tree, Policy::Leveling, sharing, of(1.0), costs, Form::Exact)
}
