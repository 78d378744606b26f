// team/probe: which threads of a workgroup of TEAM, 24 at most, a sum by team/subgroup reaches, as each of them finds it:
// bit t for thread t.
//
// Neither a subgroup's size nor which threads are in one is WebGPU's to say; drivers choose. Run once when a device is
// opened. Needs: TEAM; lib/team/subgroup.

@group(0) @binding(0) var<storage, read_write> found: array<u32>;

@compute @workgroup_size(TEAM)
fn probe(@builtin(local_invocation_index) thread: u32) {
  found[thread] = u32(team_sum(vec4f(f32(1u << thread)), thread).x);
}
