// team/subgroup: sums over the threads that share a row, where they are a workgroup and a subgroup of their own.
//
// The adapter was asked whether they are (lib/team/probe). The same additions as in team/shared, so the same bits.
// Needs: TEAM (a power of two), ROWS_IN_TURN.

// The sum of `share` over the thread's team, the same in each of its threads.
fn team_sum(share: vec4f, thread: u32) -> vec4f {
  if (ROWS_IN_TURN > 1u) {
    workgroupBarrier();  // between a row and the next: lib/store/pairs
  }
  var sum = share;
  for (var reach = TEAM / 2u; reach > 0u; reach /= 2u) {
    sum += subgroupShuffleXor(sum, reach);
  }
  return sum;
}
