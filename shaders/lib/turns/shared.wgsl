// turns/shared: sums over the teams that walk a chunk's rows by turns.
//
// Every thread of the workgroup has to come here. The teams are added in order.
// Needs: TEAM, TEAMS, THREADS.

var<workgroup> of_teams: array<vec4f, THREADS>;

// The sum of `share` over the threads with the same lane, right in the first team.
fn turn_sum(share: vec4f, thread: u32) -> vec4f {
  var total = share;
  workgroupBarrier();  // the sum before this one has been read
  of_teams[thread] = share;
  workgroupBarrier();
  if (thread < TEAM) {
    for (var team = 1u; team < TEAMS; team++) {
      total += of_teams[team * TEAM + thread];
    }
  }
  return total;
}
