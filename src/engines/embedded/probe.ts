/**
 * Starts every enabled embedded engine, as the server would, and stops it again, to check the setup
 * before serving callers. Fetches nothing, and leaves nothing in the data folder.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LlamaEngine } from './llama-engine.ts';
import { demoModels } from './llama-models.ts';
import { type EngineSet, findPackages, packageSet } from './packages.ts';
import {
  type EngineProbe,
  type LocalEnginesParts,
  MediaEngines,
  startProblem,
  threadsOf,
} from './media-engines.ts';
import { sentenceEngine } from './sentences.ts';

export type { EngineProbe } from './media-engines.ts';

/** Returns the states in the order in which a server starts the engines. */
export async function probeEmbedded(parts: LocalEnginesParts): Promise<readonly EngineProbe[]> {
  const { config, log, clock, ids } = parts;
  const { embedded, dataFolder } = config;
  if (!embedded.enabled) return [];
  const common = { dataFolder, log, clock, ids };
  const probes = [
    await probe('embedded', 'llama', dataFolder, () => {
      const llama = new LlamaEngine({
        ...common,
        threads: threadsOf(config),
        models: demoModels(),
      });
      return { address: () => llama.start(), close: () => llama.stop() };
    }),
  ];
  if (embedded.sentences) {
    const open = () => sentenceEngine(common);
    probes.push(await probe('embedded-sentences', 'sentences', dataFolder, open));
  }
  return embedded.media ? [...probes, ...(await probeMedia(parts))] : probes;
}

/** Starts and stops the engine that `open` returns if its packages are available. */
async function probe(
  engine: string,
  set: EngineSet,
  dataFolder: string,
  open: () => { address(): Promise<unknown>; close(): Promise<void> },
): Promise<EngineProbe> {
  const needs: readonly EngineSet[] = [set];
  if (findPackages(packageSet(set), dataFolder) === undefined) {
    return { engine, needs, missing: needs, problem: undefined };
  }
  const child = open();
  const problem = await startProblem(child);
  await child.close();
  return { engine, needs, missing: [], problem };
}

async function probeMedia(parts: LocalEnginesParts): Promise<readonly EngineProbe[]> {
  const work = await mkdtemp(join(tmpdir(), 'farebox-check-'));
  const engines = new MediaEngines(parts);
  try {
    return await engines.probe(work);
  } finally {
    await engines.stop();
    await rm(work, { recursive: true, force: true });
  }
}
