/** Starts the demo model in a real child process, for the tests of other parts. One thread. */
import { systemClock } from '../../src/core/clock.ts';
import { silentLog } from '../../src/core/log.ts';
import { demoModels } from '../../src/engines/llama/demo-model.ts';
import { LlamaEngine } from '../../src/engines/llama/llama-engine.ts';

export interface TestLlama {
  /** The base URL of the OpenAI protocol, with `/v1`. */
  readonly url: string;
  readonly engine: LlamaEngine;
  stop(): Promise<void>;
}

/** A running engine that serves `farebox-demo` and `farebox-demo-embedding`; stop it afterwards. */
export async function startTestLlama(): Promise<TestLlama> {
  const engine = new LlamaEngine({
    clock: systemClock(),
    log: silentLog,
    threads: 1,
    models: demoModels(),
  });
  await engine.start();
  const { url } = engine;
  if (url === undefined) throw new Error('The test engine has no address');
  return { url, engine, stop: async () => engine.stop() };
}
