// turns/single: a chunk's rows are all of one team's.
// Needs: Columns (lib/columns or lib/sums).

// What turns/shared adds up over the teams.
fn turn_sum(share: Columns, thread: u32) -> Columns {
  return share;
}
