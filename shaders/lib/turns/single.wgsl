// turns/single: a chunk's rows are all of one team's.

// What turns/shared adds up over the teams.
fn turn_sum(share: vec4f, thread: u32) -> vec4f {
  return share;
}
