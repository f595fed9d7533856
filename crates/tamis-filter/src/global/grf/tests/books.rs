//! Books of more runs than there are symbols.

use std::collections::BTreeMap;

use super::*;
use book::Book;

#[test]
fn the_rarest_of_too_many_gaps_share_a_symbol_that_stands_for_them_all() {
    let base = 10;
    let last = epochs(0, base);
    let gaps = (0..6000u64).map(|i| (epochs(base + i, base + i + 1), 1 + random(i, 1) % 100));
    let counts: BTreeMap<Epochs, u64> = gaps.chain([(last, 1)]).collect();
    for grows in [false, true] {
        let book = Book::new(base, &counts, 0, grows);
        assert_eq!(book.epochs(book.exact(last).into()), last, "rare as it is");
        let mut precise = 0;
        for &gap in counts.keys() {
            let symbol = book.exact(gap);
            assert!(u32::from(symbol) < book.symbols());
            assert!(book.epochs(symbol.into()).contains(gap));
            precise += usize::from(book.epochs(symbol.into()) == gap);
        }
        assert!(precise > 4000, "{precise} of 6000 have a symbol of their own");
        assert_eq!(book.symbol(epochs(book.future(), book.future() + 1)).is_some(), grows);
    }
}
