/**
 * Tries every embedded engine that the settings want, as a start would, and ends it again: for a
 * check before anybody is offered anything. Fetches nothing, and leaves nothing in the data folder.
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

/** In the order in which a server starts them. */
export async function probeEmbedded(parts: LocalEnginesParts): Promise<readonly EngineProbe[]> {
  const { embedded } = parts.config;
  if (!embedded.enabled) return [];
  const own = [await probeLlama(parts)];
  if (embedded.sentences) own.push(await probeSentences(parts));
  return embedded.media ? [...own, ...(await probeMedia(parts))] : own;
}

async function probeSentences({ config, ...parts }: LocalEnginesParts): Promise<EngineProbe> {
  const needs: readonly EngineSet[] = ['sentences'];
  const engine = 'embedded-sentences';
  const { dataFolder } = config;
  if (findPackages(packageSet('sentences'), dataFolder) === undefined) {
    return { engine, needs, missing: needs, problem: undefined };
  }
  const { log, clock, ids } = parts;
  const child = sentenceEngine({ dataFolder, log, clock, ids });
  const problem = await startProblem(child);
  await child.close();
  return { engine, needs, missing: [], problem };
}

async function probeLlama({ config, ...parts }: LocalEnginesParts): Promise<EngineProbe> {
  const needs: readonly EngineSet[] = ['llama'];
  const engine = 'embedded';
  if (findPackages(packageSet('llama'), config.dataFolder) === undefined) {
    return { engine, needs, missing: needs, problem: undefined };
  }
  const { dataFolder } = config;
  const models = demoModels();
  const llama = new LlamaEngine({ ...parts, dataFolder, threads: threadsOf(config), models });
  const problem = await startProblem({ address: () => llama.start() });
  await llama.stop();
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
