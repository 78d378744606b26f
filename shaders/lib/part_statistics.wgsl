// part_statistics: the mean and r of a row that is cut into parts: each pass of lib/statistics is a phase.
// Needs: sizes.d, sizes.parts, sizes.phase; lib/part, lib/team, lib/statistics.

const STATISTICS_PHASES = 2u;

fn sum_for_statistics(part: Row, unit: u32, thread: u32) {
  var share: vec4f;
  if (sizes.phase == 0u) {
    share = sum_share(part, thread);
  } else {
    share = missed_share(part, thread, near_of_parts(part, thread));
  }
  sum_part(part, unit, share, thread);
}

fn near_of_parts(part: Row, thread: u32) -> f32 {
  let sum = sum_of_parts(part, 0u, thread);
  return sum.x / f32(sizes.d);
}

fn statistics_of_parts(part: Row, thread: u32) -> Statistics {
  let near = near_of_parts(part, thread);
  let means = sum_of_parts(part, 1u, thread) / f32(sizes.d);
  return Statistics(near, means.x, inverse_deviation(means.x, means.y, means.z));
}

// Written once a row, by its first part.
fn write_part_statistics(statistics: Statistics, part: Row, unit: u32, thread: u32) {
  if (unit % sizes.parts == 0u) {
    write_statistics(statistics, part, thread);
  }
}
