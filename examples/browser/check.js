// The check on navigator.gpu: launches what `rowgrad export-web` recorded and holds what comes out to its bounds.
// Nothing of the page is touched here. Twins: rowgrad_wgpu/backends/webgpu.py, rowgrad_wgpu/bounds.py.

const ROUND_MS = 100; // a timed round is about as long
const MOST_LAUNCHES = 200; // behind one wait
const ROUNDS = 7;
const PATTERN = 1 << 18; // numbers drawn for the timed inputs, which repeat them

const NO_WEBGPU =
  "This browser has no WebGPU. Try a current Chrome, Edge, Firefox or Safari; some have it switched off.";
const NOT_SECURE = "Browsers have WebGPU only for pages that come over https or from localhost.";
const NO_ADAPTER =
  "This browser has WebGPU but gives no adapter: it may distrust the GPU's driver, or hardware acceleration is off.";
const LOST = "The device was lost: the driver or the browser's GPU process gave up. Reload the page to try again.";
const LOST_MS = 100;

// What went wrong, in words for the visitor.
export class Problem extends Error {}

export async function load() {
  const [plan, values] = await Promise.all(["plan.json", "values.bin"].map(fetched));
  return { plan: await plan.json(), values: await values.arrayBuffer() };
}

async function fetched(name) {
  const response = await fetch(name).catch((error) => ({ status: error.message }));
  if (!response.ok) throw new Problem(`${name} could not be loaded: ${response.status}.`);
  return response;
}

export async function openAdapter() {
  if (!navigator.gpu) throw new Problem(isSecureContext ? NO_WEBGPU : NOT_SECURE);
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new Problem(NO_ADAPTER);
  return adapter;
}

export function describe(adapter) {
  const { vendor = "", architecture = "", device = "", description = "", isFallbackAdapter } = adapter.info ?? {};
  const software = isFallbackAdapter ?? adapter.isFallbackAdapter ?? false;
  return { vendor, architecture, device, description, kind: software ? "software" : "hardware" };
}

// A device that runs programs: recorded buffers, writes and launches.
export class Machine {
  #device;
  #kernels;
  #values;
  #problem;
  #lost;
  #pipelines = new Map();
  #layouts = new Map();

  // The limits that every adapter has are enough.
  static async open(adapter, { plan, values }) {
    const device = await adapter.requestDevice().catch((error) => {
      throw new Problem(`The adapter gave no device: ${error.message}`);
    });
    return new Machine(device, plan.kernels, values);
  }

  constructor(device, kernels, values) {
    this.#device = device;
    this.#kernels = kernels;
    this.#values = values;
    device.addEventListener("uncapturederror", ({ error }) => (this.#problem ??= error.message));
    device.lost.then(({ message, reason }) => (this.#lost = `${LOST} (${message || reason})`));
  }

  // What `work` comes to; if it fails because the device was lost, of which the news may come a little later, that.
  async explained(work) {
    try {
      return await work;
    } catch (error) {
      await new Promise((resolve) => setTimeout(resolve, LOST_MS));
      throw this.#lost ? new Problem(this.#lost) : error;
    }
  }

  // Buffers with what was written to them, and the dispatches in order.
  async build(program) {
    const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
    const usage = STORAGE | COPY_SRC | COPY_DST;
    const buffers = program.buffers.map((size) => this.#device.createBuffer({ size, usage }));
    for (const { buffer, data } of program.writes) this.#upload(buffers[buffer], data);
    const pipelines = await Promise.all(program.launches.map((launch) => this.#pipeline(launch)));
    const steps = program.launches.flatMap((launch, index) => this.#steps(launch, pipelines[index], buffers));
    return { buffers, steps };
  }

  // Binary values lie padded with zeros, so a write may end with the word.
  #upload(buffer, [begin, nbytes]) {
    this.#device.queue.writeBuffer(buffer, 0, this.#values, begin, Math.ceil(nbytes / 4) * 4);
  }

  #pipeline(launch) {
    const { shader } = launch;
    if (!this.#pipelines.has(shader)) this.#pipelines.set(shader, this.#compiled(shader, launch.variant.kernel));
    return this.#pipelines.get(shader);
  }

  async #compiled(shader, kernel) {
    const code = await (await fetched(shader)).text();
    const module = this.#device.createShaderModule({ label: shader, code });
    const { messages } = await module.getCompilationInfo();
    const error = messages.find(({ type }) => type === "error");
    if (error) throw new Problem(`${shader} does not compile. Line ${error.lineNum}: ${error.message}`);
    const layout = this.#device.createPipelineLayout({ bindGroupLayouts: [this.#layout(kernel)] });
    const compute = { module, entryPoint: kernel };
    return this.#device.createComputePipelineAsync({ label: shader, layout, compute }).catch((failure) => {
      throw new Problem(`${shader} gives no pipeline: ${failure.message}`);
    });
  }

  #layout(kernel) {
    if (!this.#layouts.has(kernel)) {
      const storage = this.#kernels[kernel].map(({ written }) => (written ? "storage" : "read-only-storage"));
      const entries = [...storage, "uniform"].map((type, binding) => {
        return { binding, visibility: GPUShaderStage.COMPUTE, buffer: { type } };
      });
      this.#layouts.set(kernel, this.#device.createBindGroupLayout({ entries }));
    }
    return this.#layouts.get(kernel);
  }

  #steps({ variant, buffers: numbers, dispatches }, pipeline, buffers) {
    return dispatches.map(({ grid, slices, fields }) => {
      const resources = this.#kernels[variant.kernel].map(({ name }) => {
        return { buffer: buffers[numbers[name]], offset: slices[name].offset, size: slices[name].nbytes };
      });
      resources.push({ buffer: this.#uniform(fields) });
      const entries = resources.map((resource, binding) => ({ binding, resource }));
      const group = this.#device.createBindGroup({ layout: this.#layout(variant.kernel), entries });
      return { pipeline, grid, group };
    });
  }

  #uniform(fields) {
    const size = Math.ceil(fields.length / 4) * 16;
    const buffer = this.#device.createBuffer({ size, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST });
    this.#device.queue.writeBuffer(buffer, 0, new Uint32Array(fields));
    return buffer;
  }

  launch({ steps }) {
    const encoder = this.#device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (const { pipeline, group, grid } of steps) {
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(...grid);
    }
    pass.end();
    this.#device.queue.submit([encoder.finish()]);
  }

  // Waits until all is done; what the browser said meanwhile is raised.
  async done() {
    await this.#device.queue.onSubmittedWorkDone();
    this.#heard();
  }

  async read(buffer) {
    const { size } = buffer;
    const staging = this.#device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    const encoder = this.#device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, staging, 0, size);
    this.#device.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ);
    this.#heard();
    const bytes = staging.getMappedRange().slice(0);
    staging.destroy();
    return bytes;
  }

  #heard() {
    if (this.#lost || this.#problem) throw new Problem(this.#lost ?? this.#problem);
  }

  write(buffer, numbers) {
    for (let begin = 0; begin < buffer.size; begin += numbers.byteLength) {
      this.#device.queue.writeBuffer(buffer, begin, numbers, 0, Math.min(numbers.length, (buffer.size - begin) / 4));
    }
  }

  values([begin, nbytes], Type) {
    return new Type(this.#values, begin, nbytes / Type.BYTES_PER_ELEMENT);
  }
}

// One input of the check, twice: within the bounds, and the same bits again.
export async function checkCase(machine, one, kind) {
  const { outputs, ...program } = one.programs[kind];
  const built = await machine.build(program);
  const [first, second] = [await outputsOf(machine, built, outputs), await outputsOf(machine, built, outputs)];
  for (const buffer of built.buffers) buffer.destroy();
  return one.results.map((result, index) => {
    const { kernel, output, bound } = result;
    const expected = machine.values(result.expected, Float64Array);
    const bounds = machine.values(result.bounds, Float32Array);
    const { gap, share } = judged(first[index], second[index], expected, bounds);
    const { dtype, shape, values } = one;
    return { kernel, dtype, shape, values, output, gap, bound, share, ok: share <= 1 };
  });
}

async function outputsOf(machine, built, outputs) {
  machine.launch(built);
  const numbers = [];
  for (const { buffer, dtype, first, step } of outputs) {
    const all = WIDEN[dtype](await machine.read(built.buffers[buffer]));
    numbers.push(step === 1 ? all : all.filter((_, index) => index % step === first));
  }
  return numbers;
}

// NaN for a number is as far off as can be; where the bound is NaN, a number for NaN is.
function judged(got, again, expected, bounds) {
  let [largest, top, share] = [0, 1e-12, 0];
  expected.forEach((value, index) => {
    const [number, bound] = [got[index], bounds[index]];
    const error = Math.abs(number - value);
    if (Number.isFinite(value)) {
      top = Math.max(top, Math.abs(value));
      largest = Math.max(largest, Number.isNaN(error) ? Infinity : error);
    }
    if (number !== again[index] && !(Number.isNaN(number) && Number.isNaN(again[index]))) share = Infinity;
    share = Math.max(share, shareOf(number, value, bound, error));
  });
  return { gap: largest / top, share };
}

function shareOf(number, value, bound, error) {
  if (Number.isFinite(value) && Number.isFinite(bound)) {
    if (Number.isNaN(error)) return Infinity;
    return error === 0 ? 0 : error / bound;
  }
  return Number.isNaN(bound) && Number.isFinite(number) ? Infinity : 0;
}

const WIDEN = {
  float32: (bytes) => new Float32Array(bytes),
  bfloat16: (bytes) => new Float32Array(Uint32Array.from(new Uint16Array(bytes), (half) => half << 16).buffer),
  float16: (bytes) => Float32Array.from(new Uint16Array(bytes), fromHalf),
};

function fromHalf(half) {
  const [sign, exponent, fraction] = [half & 0x8000 ? -1 : 1, (half >> 10) & 31, half & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24);
}

// The time of a launch: the mean of those behind one wait, the median over rounds.
export async function timed(machine, speed) {
  const { kernel, dtype, shape, bytes, inputs } = speed;
  const built = await machine.build(speed);
  for (const input of inputs) machine.write(built.buffers[input], drawn(shape.at(-1)));
  await round(machine, built, 1);
  const launches = Math.round(Math.min(Math.max(ROUND_MS / (await round(machine, built, 3)), 1), MOST_LAUNCHES));
  const rounds = [];
  while (rounds.length < ROUNDS) rounds.push(await round(machine, built, launches));
  for (const buffer of built.buffers) buffer.destroy();
  const ms = rounds.sort((a, b) => a - b)[ROUNDS >> 1];
  return { kernel, dtype, shape, ms, gbs: bytes / ms / 1e6, launches };
}

// Milliseconds a launch.
async function round(machine, built, launches) {
  await machine.done();
  const begun = performance.now();
  for (let count = 0; count < launches; count++) machine.launch(built);
  await machine.done();
  return (performance.now() - begun) / launches;
}

function drawn(d) {
  return Float32Array.from({ length: PATTERN }, () => (2 * Math.random()) / d);
}
