// team/shared: sums over the threads that share a row, through workgroup memory.
//
// Every thread of the workgroup has to come here, its row there or not: the barriers are for all of them.
// The order of the additions is fixed, so the same input gives the same bits. A team's upper half hands its shares to
// the lower one, whose own stay where they are: compilers set the array to zero first, and what FXC takes for that
// grows with the square of its length.
// Needs: TEAM (a power of two, 2 at least), TEAMS.

const HALF = TEAM / 2u;
var<workgroup> shares: array<vec4f, HALF * TEAMS>;

// The sum of `share` over the thread's team, the same in each of its threads.
fn team_sum(share: vec4f, thread: u32) -> vec4f {
  let lane = thread % TEAM;
  let first = thread / TEAM * HALF;
  let place = first + lane % HALF;
  workgroupBarrier();  // the sum before this one has been read by all
  if (lane >= HALF) {
    shares[place] = share;
  }
  workgroupBarrier();
  if (lane < HALF) {
    shares[place] = share + shares[place];
  }
  workgroupBarrier();
  for (var reach = HALF / 2u; reach > 0u; reach /= 2u) {
    if (lane < reach) {
      shares[place] += shares[place + reach];
    }
    workgroupBarrier();
  }
  return shares[first];
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
