// team/subgroup: sums over the threads that share a row, where they are a workgroup and a subgroup of their own.
//
// The adapter was asked whether they are (lib/team/probe). The same additions as in team/shared, so the same bits.
// Needs: TEAM (a power of two).

// The sum of `share` over the thread's team, the same in each of its threads.
fn team_sum(share: vec4f, thread: u32) -> vec4f {
  var sum = share;
  for (var reach = TEAM / 2u; reach > 0u; reach /= 2u) {
    sum += subgroupShuffleXor(sum, reach);
  }
  return sum;
}

// The `value` of the team's thread `lane`, the same in each of its threads.
fn of_lane(value: u32, lane: u32, thread: u32) -> u32 {
  return subgroupShuffle(value, lane);
}
