// team/shared: sums over the threads that share a row, through workgroup memory.
//
// Every thread of the workgroup has to come here, its row there or not: the barriers are for all of them.
// The order of the additions is fixed, so the same input gives the same bits.
// Needs: TEAM (a power of two), TEAMS, THREADS.

var<workgroup> shares: array<vec4f, THREADS>;

// The sum of `share` over the thread's team, the same in each of its threads.
fn team_sum(share: vec4f, thread: u32) -> vec4f {
  workgroupBarrier();  // the sum before this one has been read by all
  shares[thread] = share;
  workgroupBarrier();
  let lane = thread % TEAM;
  for (var reach = TEAM / 2u; reach > 0u; reach /= 2u) {
    if (lane < reach) {
      shares[thread] += shares[thread + reach];
    }
    workgroupBarrier();
  }
  return shares[thread - lane];
}

var<workgroup> handed_on: array<u32, TEAMS>;

// The `value` of the team's thread `lane`, the same in each of its threads.
fn of_lane(value: u32, lane: u32, thread: u32) -> u32 {
  workgroupBarrier();  // the value before this one has been read
  if (thread % TEAM == lane) {
    handed_on[thread / TEAM] = value;
  }
  workgroupBarrier();
  return handed_on[thread / TEAM];
}
