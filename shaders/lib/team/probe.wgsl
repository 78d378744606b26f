// team/probe: how many threads of a workgroup of THREADS share a subgroup, as each of them finds it.
//
// Neither a subgroup's size nor which threads are in one is WebGPU's to say; drivers choose. Run once when a device is
// opened. Needs: THREADS.

@group(0) @binding(0) var<storage, read_write> found: array<u32>;

@compute @workgroup_size(THREADS)
fn probe(@builtin(local_invocation_index) thread: u32) {
  found[thread] = subgroupAdd(1u);
}
