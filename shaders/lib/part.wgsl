// part: a row that is cut into parts, one for each workgroup, and the sums of its parts.
//
// Part p holds columns p * part to min((p + 1) * part, d), or nothing where it begins behind them; for lib/row it is a
// row. Units count the parts of all rows. A launch is a dispatch for every phase: each part leaves its sums in `sums`,
// and in the phases after it every workgroup adds those of its row, in one order, so that all have the same bits.
// Needs: sums, sizes.d, sizes.part, sizes.parts, sizes.phase, sizes.row_count, sizes.origin, sizes.sums_origin; lib/row,
// lib/team; TEAM (all threads of the workgroup), PHASES.

fn part_at(unit: u32) -> Row {
  var part = Row(unit / sizes.parts, 0u, 0u, 0u, 0u, 0u);
  let column = unit % sizes.parts * sizes.part;
  if (part.index < sizes.row_count && column < sizes.d) {
    part.start = sizes.origin + part.index * sizes.d + column;
    part.first = column;
    part.length = min(sizes.part, sizes.d - column);
    part.quads = (part.length + 3u) / 4u;
  }
  return part;
}

// Where a phase leaves the sums of a unit.
fn sums_slot(unit: u32, phase: u32) -> u32 {
  return sizes.sums_origin / 4u + unit * (PHASES - 1u) + phase;
}

// Leaves the sum of the threads' shares for the phases that follow.
fn sum_part(part: Row, unit: u32, share: vec4f, thread: u32) {
  let total = team_sum(share, thread);
  if (thread == 0u && part.index < sizes.row_count) {
    sums[sums_slot(unit, sizes.phase)] = total;
  }
}

// What an earlier phase summed, over all parts of the row.
fn sum_of_parts(part: Row, phase: u32, thread: u32) -> vec4f {
  var share = vec4f();
  if (part.index < sizes.row_count) {
    for (var p = thread; p < sizes.parts; p += TEAM) {
      share += sums[sums_slot(part.index * sizes.parts + p, phase)];
    }
  }
  let total = team_sum(share, thread);
  return total;
}
