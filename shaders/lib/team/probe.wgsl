// team/probe: how many threads of a workgroup of TEAM a sum by team/subgroup reaches, as each of them finds it.
//
// Neither a subgroup's size nor which threads are in one is WebGPU's to say; drivers choose. Run once when a device is
// opened. Needs: TEAM; lib/team/subgroup.

@group(0) @binding(0) var<storage, read_write> found: array<u32>;

@compute @workgroup_size(TEAM)
fn probe(@builtin(local_invocation_index) thread: u32) {
  found[thread] = u32(team_sum(vec4f(1.0), thread).x);
}
