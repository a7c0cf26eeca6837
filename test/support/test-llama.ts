/** Starts the demo model with one thread in a real child process, for tests of other parts. */
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import { LlamaEngine } from '../../src/engines/embedded/llama-engine.ts';
import { demoModels } from '../../src/engines/embedded/llama-models.ts';

export interface TestLlama {
  /** The base URL of the OpenAI protocol, with `/v1`. */
  readonly url: string;
  readonly apiKey: string;
  readonly engine: LlamaEngine;
  stop(): Promise<void>;
}

/** A running engine with `farebox-demo` and `farebox-demo-embedding`; stop it afterwards. */
export async function startTestLlama(): Promise<TestLlama> {
  const engine = new LlamaEngine({
    clock: systemClock(),
    ids: systemIds(),
    log: silentLog,
    threads: 1,
    models: demoModels(),
  });
  const { url, apiKey } = await engine.process.address();
  return { url: `${url}/v1`, apiKey, engine, stop: async () => engine.process.close() };
}
