// turns/shared: sums over the teams that walk a chunk's rows by turns.
//
// Every thread of the workgroup has to come here. The teams are added in order. One half of them hands its shares on
// after the other, so that the array is short: see team/shared.
// Needs: TEAM, TEAMS (a power of two, 2 at least).

const HALF_TEAMS = TEAMS / 2u;
var<workgroup> of_teams: array<vec4f, TEAM * HALF_TEAMS>;

// The sum of `share` over the threads with the same lane, right in the first team.
fn turn_sum(share: vec4f, thread: u32) -> vec4f {
  let team = thread / TEAM;
  var total = share;
  for (var half = 0u; half < 2u; half++) {
    workgroupBarrier();  // the shares before these have been read
    if (team / HALF_TEAMS == half) {
      of_teams[thread % (TEAM * HALF_TEAMS)] = share;
    }
    workgroupBarrier();
    if (team == 0u) {
      for (var next = 1u - half; next < HALF_TEAMS; next++) {  // its own share it has
        total += of_teams[next * TEAM + thread];
      }
    }
  }
  return total;
}
